"""What a model is told beside a selection: that the call succeeded, what is missing, and where the rest is, if any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.results.calls import Call, ResultOptions
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import RESULT_META_KEY, SELECTION_META_KEY, Results
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.result_store import ResultStore, StoreLimits
from mcp_optimizer.results.selecting import AT_ONCE
from tests.unit.results.test_limits import COUNTER, as_it_came, gate, id_of, text_result, texts, tokens, whole

SMALL = {"ok": True, "card": {"card_id": 7, "title": "Write the docs"}}
CARDS = [
    {"card_id": n, "title": f"Card {n}", "owner": f"u{n % 3}" if n % 5 else None, "blocked": False} for n in range(60)
]
BOARD = {"total": 60, "cards": CARDS}
KEYS = "{total, cards[]: {card_id, title, owner, blocked}}"


def meta(result: dict[str, Any], key: str) -> Any:
    return result["_meta"].get(key)


async def test_a_wrong_guess_at_a_small_result_gets_all_of_it_and_reads_like_a_success() -> None:
    async with gate(max_tokens=1_000) as opened:
        result = await opened.pass_through(text_result(json.dumps(SMALL)), select=Projection("id"))
        assert texts(result) == [
            '{"ok":true,"card":{"card_id":7,"title":"Write the docs"}}',
            "[The call succeeded. select matched nothing: there is no key id. This is the complete result.]",
        ]
        assert not result.get("isError")
        assert meta(result, RESULT_META_KEY) is None


async def test_a_wrong_guess_at_a_larger_result_is_told_its_keys_and_how_to_select_again() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection("card.id"))
        found = id_of(result)
        assert texts(result) == [
            f"[The call succeeded. select matched nothing: there is no key card. Keys: {KEYS}. "
            f'Select again: read_result(result_id="{found}")]'
        ]
        assert not result.get("isError")
        again = await opened.results.read(found, select="cards[0].card_id")
        assert texts(again) == ["0"]
        wrong = await opened.results.read(found, select="cards[].id")
        assert texts(wrong) == [
            "[select matched nothing: none of 60 items has the key id. Keys: {card_id, title, owner, blocked}.]"
        ]


async def test_a_condition_that_nothing_fulfils_is_not_a_wrong_guess() -> None:
    async with gate() as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection("cards[?blocked].title"))
        shown, notice = texts(result)
        assert shown == "[]"
        assert notice.startswith("[The call succeeded. select matched nothing: none of 60 items fulfils the condition.")


async def test_nulls_left_out_are_counted_when_a_tool_is_called_and_when_a_result_is_read() -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection("cards[].owner"))
        shown, notice = texts(result)
        assert len(json.loads(shown)) == 48
        assert notice == f'[12 nulls left out. All of it: read_result(result_id="{id_of(result)}")]'
        read = await opened.results.read(id_of(result), select="length(cards[].owner)")
        assert texts(read) == ["48", "[12 nulls left out.]"]


async def test_a_selection_from_a_small_result_stands_alone_is_not_kept_and_still_counts_as_saved() -> None:
    async with gate() as opened:
        result = await opened.pass_through(text_result(json.dumps(SMALL)), select=Projection("card.card_id"))
        assert texts(result) == ["7"]
        assert meta(result, RESULT_META_KEY) is None
        assert meta(result, SELECTION_META_KEY) == {"fullTokens": COUNTER.count_tokens(json.dumps(SMALL))}


async def test_a_selection_from_a_larger_result_says_only_where_all_of_it_is() -> None:
    async with gate() as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection("total"))
        assert texts(result) == ["60", f'[All of it: read_result(result_id="{id_of(result)}")]']
        assert meta(result, RESULT_META_KEY)["fullTokens"] == pytest.approx(
            COUNTER.count_tokens(json.dumps(BOARD)), rel=0.05
        )
        assert meta(result, SELECTION_META_KEY) is None


async def test_a_cut_selection_states_the_cost_of_the_result_and_not_of_the_selection() -> None:
    async with gate(max_tokens=300) as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection("cards[].title"))
        assert tokens(result) <= 300
        assert meta(result, RESULT_META_KEY)["fullTokens"] == pytest.approx(
            COUNTER.count_tokens(json.dumps(BOARD)), rel=0.05
        )
        assert json.loads(whole(await opened.all_pages(id_of(result)))) == [card["title"] for card in CARDS]


async def test_a_small_text_before_large_structured_content_is_no_small_result() -> None:
    async with gate() as opened:
        sent = text_result("Done.", structuredContent=BOARD)
        result = await opened.pass_through(sent, select=Projection("crads"))
        assert f"Keys: {KEYS}." in texts(result)[0]
        again = await opened.results.read(id_of(result), select="total")
        assert texts(again) == ["60"]


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("limit", [200, 250, 400, 5_000])
@pytest.mark.parametrize(
    "select", ["x", "cards[].x", "cards[].{a: title, b: x}", "cards[].owner", "cards[?x]", "cards[?blocked]", "sum(@)"]
)
async def test_a_selection_and_its_notice_are_within_the_limit(limit: int, select: str) -> None:
    async with gate(max_tokens=limit) as opened:
        for sent in (SMALL, BOARD, {"cards": CARDS[:6]}):
            result = await opened.pass_through(text_result(json.dumps(sent)), select=Projection(select))
            assert tokens(result) <= limit
            assert "null" not in texts(result)


async def test_a_result_that_could_not_be_kept_is_not_offered() -> None:
    async def broken() -> KeptResults:
        raise CatalogError("the disk is full")

    async def ask() -> dict[str, Any]:
        return text_result(json.dumps(BOARD))

    for store in (ResultStore(broken, StoreLimits(waiting_bytes=10)), None):
        results = Results(Estimator("auto", COUNTER), store, ResultOptions())
        result = await results.answer(Call("s", "t", LOCAL, select=Projection("cards[0].title")), ask)
        assert texts(result) == ['"Card 0"']
        assert meta(result, SELECTION_META_KEY)["fullTokens"] > 300
        guess = await results.answer(Call("s", "t", LOCAL, select=Projection("cards[0].name")), ask)
        assert texts(guess) == [
            "[The call succeeded. select matched nothing: there is no key name. "
            "Keys: {card_id, title, owner, blocked}.]"
        ]


@pytest.mark.process
async def test_remarks_are_the_same_whether_an_expression_takes_few_steps_or_many() -> None:
    rows = [{"id": number, "name": f"Person {number}", "boss": None} for number in range(20_000)]
    assert len(rows) * 6 > AT_ONCE
    large = as_it_came(text_result(json.dumps(rows)))
    async with gate(max_tokens=1_000) as opened:
        wrong = await opened.pass_through(large, select=Projection("[].[title, titel, label]"))
        assert "none of 20,000 items has the key title. Keys: {id, name, boss}." in texts(wrong)[0]
        bosses = await opened.pass_through(large, select=Projection("{n: length([].name), b: length([].boss)}"))
        assert texts(bosses)[0] == '{"n":20000,"b":0}'
        assert texts(bosses)[1].startswith("[20,000 nulls left out. ")


async def test_a_page_says_what_it_counts() -> None:
    async with gate(max_rows=10, max_tokens=300) as opened:
        settings = {f"setting_{n}": f"value number {n} " * 5 for n in range(40)}
        cut = await opened.pass_through(text_result(json.dumps(settings)))
        assert " of 40 keys shown" in texts(cut)[-1]
        page = await opened.results.read(id_of(cut), limit=2)
        assert texts(page)[1] == "[Keys 0 to 1 of 40. Next: offset=2.]"
        listed = await opened.pass_through(text_result(json.dumps(["word " * 9] * 100)))
        assert (
            texts(await opened.results.read(id_of(listed), offset=99))[1] == "[Items 99 to 99 of 100. That is the end.]"
        )


async def test_a_page_that_holds_everything_says_just_that() -> None:
    async with gate(max_rows=10) as opened:
        cut = await opened.pass_through(text_result(json.dumps(CARDS)))
        page = await opened.results.read(id_of(cut))
        assert texts(page) == [json.dumps(CARDS), "[All of it.]"]


@pytest.mark.parametrize("function", ["count_by(cards, &owner_name)", "group_by(cards, &owner_name)"])
async def test_grouping_by_a_key_that_nothing_has_says_so_and_names_the_keys(function: str) -> None:
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(text_result(json.dumps(BOARD)), select=Projection(function))
    told = result["content"][-1]["text"]
    assert "owner_name" in told
    assert "title" in told


async def test_grouping_by_a_key_that_is_null_for_all_says_nothing() -> None:
    sent = {"cards": [{"owner": None, "id": 1}, {"owner": None, "id": 2}]}
    async with gate(max_tokens=5_000) as opened:
        result = await opened.pass_through(text_result(json.dumps(sent)), select=Projection("count_by(cards, &owner)"))
    assert len(result["content"]) == 1
