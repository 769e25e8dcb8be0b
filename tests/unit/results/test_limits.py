"""Limits lose nothing: what is sent is within them and has the same shape, and all pages together are the original."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.large_messages import read_large
from mcp_optimizer.largejson.raw import LargeValue
from mcp_optimizer.results.calls import Call, ResultOptions, Treatment
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import RESULT_META_KEY, Results
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.reader import PAGE_META_KEY
from mcp_optimizer.results.result_store import ResultStore, StoreLimits
from mcp_optimizer.results.result_texts import compact
from mcp_optimizer.token_counter import TokenCounter
from tests.trying import at_most
from tests.unit.results.test_cut import CONTAINERS, ROWS, STYLES

COUNTER = TokenCounter()
ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=60)


@dataclass(frozen=True)
class Gate:
    """The results pipeline with its database, which is in memory unless a place is given."""

    results: Results
    kept: KeptResults
    store: ResultStore

    async def pass_through(self, result: dict[str, Any], **more: Any) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            return result

        return await self.results.answer(Call("server", "tool", **more), ask)

    async def all_pages(self, result_id: str, caller: Caller = LOCAL) -> list[dict[str, Any]]:
        pages = []
        offset: int | None = 0
        while offset is not None:
            page = await self.results.read(result_id, caller, offset=offset)
            pages.append(page)
            offset = page["_meta"][PAGE_META_KEY].get("nextOffset")
        return pages


@asynccontextmanager
async def gate(
    max_tokens: int = 0, max_rows: int = 0, store: StoreLimits | None = None, place: Path | str | None = None
) -> AsyncIterator[Gate]:
    database = await open_database(place)
    try:
        kept = KeptResults(database)

        async def opened() -> KeptResults:
            return kept

        options = ResultOptions(Treatment(max_rows=max_rows, max_tokens=max_tokens))
        stored = ResultStore(opened, store)
        yield Gate(Results(Estimator("auto", COUNTER), stored, options), kept, stored)
    finally:
        await database.close()


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def tokens(result: dict[str, Any]) -> int:
    """The most tokens that the text blocks cost, however a client joins them."""
    blocks = texts(result)
    ways = ["".join(blocks), "\n".join(blocks), "\n\n".join(blocks)]
    return max(sum(map(COUNTER.count_tokens, blocks)), *map(COUNTER.count_tokens, ways))


def whole(pages: list[dict[str, Any]]) -> str:
    return "".join(texts(page)[0] for page in pages)


def same(shown: str, sent: str) -> bool:
    """Whether both are the same text, or the same JSON with less white space."""
    return shown == sent or (len(shown) < len(sent) and repr(json.loads(shown)) == repr(json.loads(sent)))


def id_of(result: dict[str, Any]) -> str:
    return str(result["_meta"][RESULT_META_KEY]["resultId"])


def run(work: Callable[[Gate], Awaitable[None]], max_tokens: int = 0, max_rows: int = 0) -> None:
    async def main() -> None:
        async with gate(max_tokens, max_rows) as opened:
            await work(opened)

    asyncio.run(main())


SLOW = settings(max_examples=at_most(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@SLOW
@given(
    st.lists(CONTAINERS, min_size=1, max_size=30) | ROWS.map(lambda rows: {"items": rows * 20}),
    STYLES,
    st.integers(200, 600),
)
def test_any_json_is_cut_to_json_of_the_same_shape_and_its_pages_are_the_original(
    value: Any, style: dict[str, Any], limit: int
) -> None:
    text = json.dumps(value, **style)

    async def check(opened: Gate) -> None:
        result = await opened.pass_through(text_result(text, structuredContent=value))
        assert tokens(result) <= limit
        first, *notice = texts(result)
        if not notice:
            assert same(first, text)
            assert COUNTER.count_tokens(compact(result["structuredContent"])) <= limit
            return
        assert "structuredContent" not in result
        assert type(json.loads(first)) is type(value)
        pages = await opened.all_pages(id_of(result))
        assert all(tokens(page) <= limit for page in pages)
        assert whole(pages) == text

    run(check, max_tokens=limit)


@pytest.mark.slow
@SLOW
@given(
    st.lists(ANY_TEXT, min_size=20, max_size=60),
    st.sampled_from(["\n", "\n\n", " ", "", "\r\n"]),
    st.integers(200, 400),
)
def test_any_text_is_cut_to_its_beginning_and_its_pages_are_the_original(
    parts: list[str], between: str, limit: int
) -> None:
    text = between.join(parts)

    async def check(opened: Gate) -> None:
        result = await opened.pass_through(text_result(text))
        assert tokens(result) <= limit
        if RESULT_META_KEY in result["_meta"]:
            pages = await opened.all_pages(id_of(result))
            assert all(tokens(page) <= limit for page in pages)
            assert whole(pages) == text
        else:
            assert same(texts(result)[0], text)

    run(check, max_tokens=limit)


@pytest.mark.slow
@SLOW
@example(
    parts=["0:" * 5, "0:" * 5, "0Ø" * 5, "0:0𐀀𐀀𐀀" * 5, "0:0:0:0:0Åྀ" * 5, "0:0:0:0:0Åྀ" * 5],
    limit=250,
)
@given(parts=st.lists(ANY_TEXT.map(lambda text: text * 5), min_size=2, max_size=20), limit=st.integers(200, 400))
def test_of_several_texts_each_comes_back_whole(parts: list[str], limit: int) -> None:
    async def check(opened: Gate) -> None:
        result = await opened.pass_through({"content": [{"type": "text", "text": part} for part in parts]})
        assert tokens(result) <= limit
        if RESULT_META_KEY not in result["_meta"]:
            assert all(map(same, texts(result), parts))
            return
        pages = await opened.all_pages(id_of(result))
        assert all(tokens(page) <= limit for page in pages)
        assert "".join(text for page in pages for text in texts(page)[:-1]) == "".join(parts)

    run(check, max_tokens=limit)


PEOPLE = [{"id": number, "name": f"Person {number}", "email": f"p{number}@example.com"} for number in range(500)]
ANSWER = {"query": "SELECT", "rowCount": 500, "items": PEOPLE}


async def test_a_table_over_max_rows_keeps_its_first_rows_and_says_how_to_go_on() -> None:
    async with gate(max_rows=100) as opened:
        result = await opened.pass_through(text_result(json.dumps(ANSWER), structuredContent=ANSWER))
        first, notice = texts(result)
        assert json.loads(first) == {**ANSWER, "items": PEOPLE[:100]}
        assert "structuredContent" not in result
        assert result["_meta"]["data"] == {
            "rowCount": 100,
            "columnCount": 3,
            "truncated": True,
            "maxRowsLimit": 100,
        }
        assert f'read_result(result_id="{id_of(result)}", offset=100)' in notice
        assert "100 of 500 rows" in notice
        page = await opened.results.read(id_of(result), offset=100, limit=2)
        assert json.loads("[" + texts(page)[0].rstrip(", ") + "]") == PEOPLE[100:102]
        assert texts(page)[1] == "[Rows 100 to 101 of 500. Next: offset=102.]"
        assert result["_meta"][RESULT_META_KEY]["fullTokens"] > result["_meta"]["tokens"]["estimated"]


async def test_a_result_within_its_limits_is_untouched_and_waits_for_no_database() -> None:
    async with gate(max_tokens=20_000, max_rows=1_000) as opened:
        sent = text_result(compact(ANSWER), structuredContent=ANSWER, isError=False, futureField=1)
        result = await opened.pass_through(sent)
        assert {key: value for key, value in result.items() if key != "_meta"} == sent
        assert result["_meta"]["data"] == {"rowCount": 500, "columnCount": 3, "truncated": False, "maxRowsLimit": 1000}


@pytest.mark.slow
async def test_a_long_text_in_a_field_of_the_structured_content_is_shown_and_kept_once() -> None:
    text = "".join(f"line number {number}\n" for number in range(1_000))
    async with gate(max_tokens=500) as opened:
        result = await opened.pass_through(text_result(text, structuredContent={"content": text}))
        assert "structuredContent" not in result
        assert len(texts(result)) == 2
        assert whole(await opened.all_pages(id_of(result))) == text
        result = await opened.pass_through(text_result(text, structuredContent={"path": "a.txt", "content": text}))
        assert texts(result)[1] == '{"path":"a.txt"}'
        assert tokens(result) <= 500
        assert whole(await opened.all_pages(id_of(result))) == text


async def test_structured_content_that_the_text_does_not_repeat_is_shown_after_it_and_kept(place: Path | str) -> None:
    async with gate(max_tokens=500, place=place) as opened:
        result = await opened.pass_through(text_result("Found 500.", structuredContent=ANSWER))
        said, rows, notice = texts(result)
        assert said == "Found 500."
        kept = json.loads(rows)
        assert kept == {**ANSWER, "items": PEOPLE[: len(kept["items"])]}
        assert kept["items"]
        assert id_of(result) in notice
        assert tokens(result) <= 500
        pages = await opened.all_pages(id_of(result))
        read = "".join(text for page in pages for text in texts(page)[:-1])
        assert json.loads(read.removeprefix("Found 500.")) == ANSWER


async def test_a_table_in_the_structured_content_alone_has_at_most_so_many_rows() -> None:
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through(text_result("Found 500.", structuredContent=ANSWER))
        said, rows, notice = texts(result)
        assert (said, json.loads(rows)["items"]) == ("Found 500.", PEOPLE[:10])
        assert notice.startswith("[Cut:")
        assert result["_meta"]["data"]["rowCount"] == 10


async def test_rows_that_are_a_text_each_are_cut_at_so_many() -> None:
    blocks = [{"type": "text", "text": json.dumps(person)} for person in PEOPLE]
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through({"content": blocks, "structuredContent": {"result": PEOPLE}})
        *rows, notice = texts(result)
        assert [json.loads(row) for row in rows] == PEOPLE[:10]
        assert "structuredContent" not in result
        assert f'read_result(result_id="{id_of(result)}", offset=10)' in notice


async def test_structured_content_without_text_is_cut_as_text() -> None:
    async with gate(max_tokens=500) as opened:
        result = await opened.pass_through({"content": [], "structuredContent": ANSWER})
        assert json.loads(texts(result)[0])["items"][0] == PEOPLE[0]
        assert "structuredContent" not in result
        assert tokens(result) <= 500
        assert json.loads(whole(await opened.all_pages(id_of(result)))) == ANSWER


async def test_images_pass_and_count_nothing() -> None:
    image = {"type": "image", "data": "A" * 50_000, "mimeType": "image/png"}
    async with gate(max_tokens=200) as opened:
        result = await opened.pass_through({"content": [image, {"type": "text", "text": "word " * 1_000}]})
        assert result["content"][0] == image
        assert tokens(result) <= 200


async def test_an_error_of_a_tool_is_held_to_the_limit_too() -> None:
    async with gate(max_tokens=200) as opened:
        result = await opened.pass_through(text_result("it failed because " * 500, isError=True))
        assert result["isError"] is True
        assert tokens(result) <= 200


async def test_search_finds_rows_wherever_they_are() -> None:
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through(text_result(json.dumps(PEOPLE)))
        found = await opened.results.read(id_of(result), search="PERSON 42")
        assert [line.split(":")[0] for line in texts(found)[0].splitlines()] == ["42", *map(str, range(420, 430))]
        assert texts(found)[1] == "[11 rows with 'PERSON 42'. No more.]"
        some = await opened.results.read(id_of(result), search="person 42", limit=2)
        assert texts(some)[1] == "[2 rows with 'person 42'. More from offset=421 on.]"
        rest = await opened.results.read(id_of(result), search="person 42", offset=421)
        assert texts(rest)[0].startswith("421: ")
        none = await opened.results.read(id_of(result), search="nobody")
        assert texts(none) == ["[No rows from offset 0 on contain 'nobody'.]"]


async def test_select_reads_a_part_of_all_of_it() -> None:
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through(text_result(json.dumps(ANSWER)))
        found = await opened.results.read(id_of(result), select="items[?id > `497`].name")
        assert texts(found) == ['["Person 498","Person 499"]']
        with pytest.raises(InvalidRequest, match="not a JMESPath"):
            await opened.results.read(id_of(result), select="items[")
        for more in ({"search": "x"}, {"offset": 3}):
            with pytest.raises(InvalidRequest, match="omit search and offset"):
                await opened.results.read(id_of(result), select="items", **more)


def as_it_came(result: dict[str, Any], **how: Any) -> dict[str, Any]:
    """A result as it is read from a message, with its large values left unparsed."""
    found: dict[str, Any] = read_large(json.dumps({"result": result}, **how).encode(), parsed)["result"]
    return found


MANY_PEOPLE = {"items": [{"id": number, "name": f"Person {number} é", "note": 'a "b"\n'} for number in range(25_000)]}


@pytest.mark.slow
@pytest.mark.parametrize("ascii_only", [True, False])
async def test_all_pages_of_a_large_result_are_what_the_server_sent(ascii_only: bool) -> None:
    text = json.dumps(MANY_PEOPLE, indent=1)
    sent = as_it_came(text_result(text, structuredContent=MANY_PEOPLE), ensure_ascii=ascii_only)
    assert isinstance(sent["structuredContent"], LargeValue)
    async with gate(max_tokens=20_000, max_rows=1_000) as opened:
        result = await opened.pass_through(sent)
        shown = json.loads(texts(result)[0])["items"]
        assert shown == MANY_PEOPLE["items"][: len(shown)]
        assert len(texts(result)) == 2
        assert "structuredContent" not in result
        assert result["_meta"][RESULT_META_KEY]["total"] == 25_000
        pages = await opened.all_pages(id_of(result))
        assert "".join(text for page in pages for text in texts(page)[:-1]) == text


@pytest.mark.slow
async def test_large_structured_content_alone_is_cut_and_paged_as_it_came() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(as_it_came({"content": [], "structuredContent": MANY_PEOPLE}))
        shown = json.loads(texts(result)[0])["items"]
        assert 0 < len(shown) < 1_000
        assert shown == MANY_PEOPLE["items"][: len(shown)]
        pages = await opened.all_pages(id_of(result))
        assert "".join(text for page in pages for text in texts(page)[:-1]) == json.dumps(MANY_PEOPLE)


async def test_small_structured_content_beside_a_large_text_is_shown_after_it() -> None:
    sent = as_it_came(text_result(json.dumps(MANY_PEOPLE), structuredContent={"count": 25_000}))
    async with gate(max_tokens=5_000) as opened:
        _, structure, notice = texts(await opened.pass_through(sent))
        assert structure == '{"count":25000}'
        assert "of 25,000 rows shown" in notice


@pytest.mark.slow
async def test_without_limits_a_large_result_is_not_touched() -> None:
    sent = as_it_came(text_result(json.dumps(MANY_PEOPLE), structuredContent=MANY_PEOPLE))
    async with gate() as opened:
        result = await opened.pass_through(sent)
        assert result["content"][0]["text"] is sent["content"][0]["text"]
        assert result["structuredContent"] is sent["structuredContent"]
        assert result["_meta"]["data"] == {"rowCount": 25_000, "columnCount": 3, "truncated": False}
        text = json.dumps(MANY_PEOPLE)
        assert result["_meta"]["tokens"]["estimated"] == pytest.approx(COUNTER.count_tokens(text), rel=0.15)


async def test_what_is_selected_is_held_to_the_limit_too() -> None:
    async with gate(max_tokens=300) as opened:
        result = await opened.pass_through(text_result(json.dumps(ANSWER)))
        found = await opened.results.read(id_of(result), select="items[].email")
        assert tokens(found) <= 300
        assert json.loads(whole(await opened.all_pages(id_of(found)))) == [person["email"] for person in PEOPLE]


async def test_select_in_plain_text_says_what_to_do_instead() -> None:
    async with gate(max_tokens=200) as opened:
        result = await opened.pass_through(text_result("word " * 1_000))
        with pytest.raises(InvalidRequest, match="Use search"):
            await opened.results.read(id_of(result), select="items")


@pytest.mark.parametrize(
    ("asked", "problem"), [({"offset": -1}, "offset"), ({"limit": 0}, "limit"), ({"search": "x" * 300}, "search")]
)
async def test_a_wrong_request_names_what_is_wrong(asked: dict[str, Any], problem: str) -> None:
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through(text_result(json.dumps(PEOPLE)))
        with pytest.raises(InvalidRequest, match=problem):
            await opened.results.read(id_of(result), **asked)


async def test_beyond_the_end_there_is_nothing() -> None:
    async with gate(max_rows=10) as opened:
        result = await opened.pass_through(text_result(json.dumps(PEOPLE)))
        assert texts(await opened.results.read(id_of(result), offset=500)) == [
            "[No rows from offset 500 on: the result has 500.]"
        ]


@pytest.mark.slow
async def test_old_results_are_forgotten_and_the_oldest_go_first_when_there_are_too_many(place: Path | str) -> None:
    noise = [{"id": number, "noise": str(hash((number, "noise")))} for number in range(40_000)]
    async with gate(max_rows=10, store=StoreLimits(megabytes=1), place=place) as opened:
        ids = [id_of(await opened.pass_through(text_result(json.dumps(noise)))) for _ in range(3)]
        await opened.store.settled()
        with pytest.raises(InvalidRequest):
            await opened.results.read(ids[0])
        assert await opened.results.read(ids[-1])
        await opened.kept.forget(-1, 10**9)
        with pytest.raises(InvalidRequest):
            await opened.results.read(ids[-1])


async def test_a_projection_returns_only_what_it_selects_and_all_of_it_stays_readable() -> None:
    async with gate(max_tokens=1_000, max_rows=1_000) as opened:
        sent = text_result(json.dumps(ANSWER), structuredContent=ANSWER)
        result = await opened.pass_through(sent, select=Projection("items[:2].{id: id, name: name}"))
        first, notice = texts(result)
        assert json.loads(first) == [{"id": 0, "name": "Person 0"}, {"id": 1, "name": "Person 1"}]
        assert "structuredContent" not in result
        assert id_of(result) in notice
        assert result["_meta"]["tokens"]["estimated"] == sum(map(COUNTER.count_tokens, texts(result)))
        assert whole(await opened.all_pages(id_of(result))) == json.dumps(ANSWER)


async def test_a_projection_that_is_too_large_is_cut_like_any_result() -> None:
    async with gate(max_tokens=300) as opened:
        result = await opened.pass_through(text_result(json.dumps(ANSWER)), select=Projection("items[].email"))
        assert tokens(result) <= 300
        assert whole(await opened.all_pages(id_of(result))) == compact([person["email"] for person in PEOPLE])


@pytest.mark.parametrize(("sent", "select"), [("plain text", "items"), ('{"a":"text"}', "sum(a)")])
async def test_a_projection_that_does_not_apply_leaves_the_result_and_says_so(sent: str, select: str) -> None:
    async with gate(max_tokens=300) as opened:
        result = await opened.pass_through(text_result(sent), select=Projection(select))
        first, notice = texts(result)
        assert first == sent
        assert notice.startswith("[Not selected: ")


async def test_an_error_is_never_projected() -> None:
    async with gate(max_tokens=300) as opened:
        result = await opened.pass_through(text_result('{"a":1}', isError=True), select=Projection("a"))
        assert texts(result) == ['{"a":1}']
