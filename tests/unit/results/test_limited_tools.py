"""The limit of a tool is told on every way of its result: cut or not, selected, read on, cached, passed unchanged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.results.calls import Call, ResultOptions, Treatment
from mcp_optimizer.results.encodings import Encoding
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.results.test_limits import Gate, as_it_came, gate, id_of, text_result, texts, tokens

COUNTER = TokenCounter()
LIMITED = {"type": "object", "properties": {"maxRows": {"type": "integer", "default": 100}}}
PEOPLE = [{"id": number, "name": f"Person {number}"} for number in range(100)]
LINE = "[100 rows, the tool's limit (maxRows): there may be more.]"
CERTAIN = "[100 rows: the tool's limit (maxRows); there are more.]"


def answer(**more: Any) -> dict[str, Any]:
    value = {"items": PEOPLE, **more}
    return text_result(json.dumps(value, separators=(",", ":")), structuredContent=value)


async def passed(opened: Gate, result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await opened.pass_through(result, input_schema=LIMITED, **more)


async def test_a_reached_limit_is_told_after_the_result_in_the_only_part_that_it_has() -> None:
    async with gate(max_tokens=20_000, max_rows=1_000) as opened:
        result = await passed(opened, answer())
        assert texts(result) == [*texts(answer()), LINE]
        assert "structuredContent" not in result
        assert result["_meta"]["data"] == {"rowCount": 100, "columnCount": 2, "maxRowsLimit": 100}
        assert result["_meta"]["tokens"]["estimated"] == sum(map(COUNTER.count_tokens, texts(result)))


async def test_what_the_tool_says_is_passed_on_and_not_told_twice() -> None:
    async with gate(max_tokens=20_000, max_rows=1_000) as opened:
        result = await passed(opened, answer(truncated=True))
        assert texts(result) == texts(answer(truncated=True))
        assert result["_meta"]["data"] == {
            "rowCount": 100,
            "columnCount": 2,
            "truncated": True,
            "maxRowsLimit": 100,
        }
        complete = await passed(opened, answer(truncated=False))
        assert complete["_meta"]["data"]["truncated"] is False
        assert complete["_meta"]["data"]["maxRowsLimit"] == 1_000


@pytest.mark.parametrize("encoding", [Encoding.COMPACT, Encoding.ORIGINAL, Encoding.CSV])
async def test_it_is_told_in_every_encoding(encoding: Encoding) -> None:
    results = Results(Estimator("auto", COUNTER), None, ResultOptions(Treatment(encoding=encoding)))

    async def ask() -> dict[str, Any]:
        return answer()

    result = await results.answer(Call("server", "tool", input_schema=LIMITED), ask)
    assert texts(result)[-1] == LINE


async def test_a_result_that_the_gateway_cuts_as_well_is_told_of_both(place: Path | str) -> None:
    async with gate(max_tokens=500, place=place) as opened:
        result = await passed(opened, answer())
        first, line, notice = texts(result)
        assert (line, notice[:5]) == (LINE, "[Cut:")
        assert tokens(result) <= 500
        assert json.loads(first)["items"][0] == PEOPLE[0]
        assert "structuredContent" not in result
        assert result["_meta"]["data"]["truncated"] is True
        pages = await opened.all_pages(id_of(result))
        assert all(page["_meta"]["data"]["truncated"] for page in pages[:-1])
        assert pages[-1]["_meta"]["data"] == {"maxRowsLimit": 100}
        assert "".join(texts(page)[0] for page in pages) == texts(answer())[0]
        assert [LINE in texts(page) for page in pages] == [False] * (len(pages) - 1) + [True]
        found = await opened.results.read(id_of(result), search="Person 99")
        assert texts(found)[-1] == LINE
        counted = await opened.results.read(id_of(result), select="length(items)")
        assert texts(counted)[0] == "100"
        assert LINE in texts(counted)


async def test_a_page_claims_nothing_about_the_rest() -> None:
    async with gate(max_tokens=500) as opened:
        result = await opened.pass_through(text_result("id,name\n" + "\n".join(f"{n},Person {n}" for n in range(500))))
        pages = await opened.all_pages(id_of(result))
        assert not any(page["_meta"].get("data", {}).get("truncated") is False for page in pages)


@pytest.mark.parametrize("said", [{}, {"truncated": True}])
async def test_what_is_selected_from_a_limited_result_is_told_to_be_a_part(said: dict[str, Any]) -> None:
    async with gate(max_tokens=20_000) as opened:
        result = await passed(opened, answer(**said), select=Projection("length(items)"))
        assert texts(result)[0] == "100"
        assert (CERTAIN if said else LINE) in texts(result)
        assert result["_meta"]["data"] == ({"truncated": True} if said else {}) | {"maxRowsLimit": 100}
        nothing = await passed(opened, answer(**said), select=Projection("items[?id > `100`]"))
        assert (CERTAIN if said else LINE) in texts(nothing)
        assert "none of 100 items" in "".join(texts(nothing))


async def test_a_cached_result_is_told_of_again() -> None:
    results = Results(Estimator("auto", COUNTER), None, ResultOptions(Treatment(cache_seconds=60)))
    call = Call("server", "tool", annotations={"readOnlyHint": True, "openWorldHint": False}, input_schema=LIMITED)

    async def ask() -> dict[str, Any]:
        return answer()

    first, again = await results.answer(call, ask), await results.answer(call, ask)
    assert again["_meta"]["performance"]["cachedResult"]
    assert again["content"] == first["content"]
    assert again["_meta"]["data"] == first["_meta"]["data"] == {"rowCount": 100, "columnCount": 2, "maxRowsLimit": 100}


async def test_a_result_that_passes_unchanged_says_it_in_its_metadata_only() -> None:
    results = Results.plain(COUNTER)
    call = Call("server", "tool", is_whole=True, input_schema=LIMITED)
    result = await results.described(answer(), time.perf_counter(), call)
    assert result["content"] == answer()["content"]
    assert result["_meta"]["data"] == {"rowCount": 100, "columnCount": 2, "maxRowsLimit": 100}


async def test_a_text_table_has_a_limit_too() -> None:
    async with gate(max_tokens=20_000) as opened:
        lines = ["id,name", *(f"{person['id']},{person['name']}" for person in PEOPLE)]
        assert texts(await passed(opened, text_result("\n".join(lines))))[-1] == LINE


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [0, 2_000], ids=["whole", "cut"])
@pytest.mark.parametrize("at_end", [True, False])
async def test_a_result_that_is_too_large_to_be_parsed_says_it(max_tokens: int, at_end: bool) -> None:
    many = {"items": [{"id": number, "note": "x" * 100} for number in range(12_000)]}
    told = {"pagination": {"has_more": True}}
    value = {**many, **told} if at_end else {**told, **many}
    async with gate(max_tokens=max_tokens) as opened:
        result = await passed(opened, as_it_came(text_result(json.dumps(value), structuredContent=value)))
        assert result["_meta"]["data"]["truncated"] is True
        schema = {"properties": {"limit": {"default": 12_000}}}
        result = await opened.pass_through(as_it_came(text_result(json.dumps(many))), input_schema=schema)
        assert "[12,000 rows, the tool's limit (limit): there may be more.]" in texts(result)


@pytest.mark.process
async def test_what_is_selected_from_a_result_that_is_too_large_to_be_parsed_is_told_to_be_a_part() -> None:
    many = {"items": [{"id": number, "note": "x" * 100} for number in range(12_000)]}
    async with gate(max_tokens=2_000) as opened:
        result = await opened.pass_through(
            as_it_came(text_result(json.dumps(many))),
            input_schema={"properties": {"limit": {"default": 12_000}}},
            select=Projection("length(items)"),
        )
        assert texts(result)[0] == "12000"
        assert "[12,000 rows, the tool's limit (limit): there may be more.]" in texts(result)
