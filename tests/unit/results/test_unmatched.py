"""A reader can tell a key that does not exist from a condition that nothing fulfils, and knows of nulls left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.limits import Limits
from mcp_optimizer.results.notices import SELECTED_ROOM, Selection
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.results.test_outline import HOSTILE

COUNT = TokenCounter().count_tokens

BOARD = {
    "total": 4,
    "cards": [
        {"card_id": 1, "title": "a", "owner": "anna", "blocked": False, "at": {"x": None}, "status": "open"},
        {"card_id": 2, "title": "b", "owner": None, "blocked": False, "at": {"x": None}, "status": "open"},
        {"card_id": 3, "title": "c", "blocked": False, "at": {"x": None}, "status": "open"},
        {"card_id": 4, "title": "d", "owner": "bo", "blocked": False, "at": {"x": None}, "status": "open"},
    ],
    "none": [],
    "next": None,
    "deep": {"nodes": [{"id": 1}]},
}
CARD = "{card_id, title, owner, blocked, at: {x}, status}"


def selected(expression: str, value: Any = BOARD) -> Selection:
    return Projection(expression).selection(value)


def told(expression: str, value: Any = BOARD) -> str:
    return selected(expression, value).notice(COUNT)


WRONG = [
    ("card", "there is no key card"),
    ("cards[].titel", "none of 4 items has the key titel"),
    ("cards[].{a: id, b: name}", "none of 4 items has the key id"),
    ("cards[?blokked]", "none of 4 items has the key blokked"),
    ("cards[?status == closed]", "none of 4 items has the key closed; a text is written 'closed'"),
    ('cards[?status == "in work"].title', "none of 4 items has the key \"in work\"; a text is written 'in work'"),
    ("cards[?title == 'a' && at.y == 'x']", "none of 4 items has the key y"),
    ("cards.title", "title cannot be a key of a list; write [].title for each of its items"),
    ("total.cards", "cards cannot be a key of a text, number or boolean"),
    ("deep[].id", "deep is not a list"),
    ("map(&titel, cards)", "none of 4 items has the key titel"),
    ("max_by(cards[].at2, &x)", "none of 4 items has the key at2"),
    ("card || crads", "there is no key card"),
    ("{a: total2, b: cards[].id2}", "there is no key total2"),
    ("deep.nodes[].name", "there is no key name"),
]


@pytest.mark.parametrize(("expression", "why"), WRONG)
def test_an_expression_that_does_not_fit_is_told_which_key_is_missing(expression: str, why: str) -> None:
    found = selected(expression)
    assert found.is_guess
    assert found.shown is None
    assert told(expression).startswith(f"[select matched nothing: {why}.")


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("card", f"{{total, cards[]: {CARD}, none: [], next, deep: {{nodes[]: {{id}}}}}}"),
        ("cards[].titel", CARD),
        ("cards.title", f"[]: {CARD}"),
        ("deep.nodes[].name", "{id}"),
    ],
)
def test_the_keys_that_exist_in_that_place_are_named(expression: str, keys: str) -> None:
    assert told(expression).endswith(f" Keys: {keys}.]")


EMPTY = [
    ("cards[?blocked]", "[]", "none of 4 items fulfils the condition"),
    ("cards[?status == 'closed'].title", "[]", "none of 4 items fulfils the condition"),
    ("{a: cards[?blocked]}", '{"a":[]}', "none of 4 items fulfils the condition"),
    ("none", "[]", "none is empty"),
    ("none[].title", "[]", "none is empty"),
    ("count_by(none, &title)", "{}", "none is empty"),
    ("cards[7:].title", "[]", "the slice holds none of 4 items"),
    ("cards[].at.x", "[]", "x is null"),
    ("cards[9].title", None, "the list has only 4 items"),
    ("next", None, "next is null"),
    ("next.page", None, "next is null"),
    ("max(none)", None, "none is empty"),
]


@pytest.mark.parametrize(("expression", "shown", "why"), EMPTY)
def test_an_expression_that_fits_where_nothing_is_says_so_and_names_no_keys(
    expression: str, shown: str | None, why: str
) -> None:
    found = selected(expression)
    assert not found.is_guess
    assert found.shown == shown
    assert told(expression) == f"[select matched nothing: {why}.]"


@pytest.mark.parametrize("expression", ["cards[].at", "cards[0].at", "total", "deep", "length(none)"])
def test_what_the_result_holds_is_selected_without_a_word_even_if_it_is_all_nulls(expression: str) -> None:
    assert told(expression) == ""
    assert selected(expression).shown == Projection(expression).text_of(BOARD)


@pytest.mark.parametrize(
    ("expression", "nulls"),
    [
        ("cards[].owner", 2),
        ("cards[*].owner", 2),
        ("cards[?card_id > `1`].owner", 2),
        ("cards[1:].owner", 2),
        ("@.*.nodes", 4),
        ("{a: cards[].owner, b: cards[].title}", 2),
        ("[@][].cards[].owner", 2),
        ("[@, @][*].cards[*].owner", 4),
        ("length(cards[].owner)", 2),
        ("sort(cards[].owner)", 2),
        ("cards | [].owner", 2),
        ("cards[].title", 0),
        ("cards[?owner].owner", 0),
        ("cards[].{o: owner}", 0),
        # What is narrowed further, or only decides, is not counted.
        ("cards[].owner | [0]", 0),
        ("cards[].owner || total", 0),
        ("cards[?contains(map(&owner, [@])[], 'bo')].title", 0),
    ],
)
def test_nulls_that_are_left_out_are_counted(expression: str, nulls: int) -> None:
    assert selected(expression).nulls == nulls
    assert told(expression) == (f"[{nulls} nulls left out.]" if nulls else "")


@given(st.lists(st.lists(st.none() | st.integers())))
def test_what_is_selected_and_what_is_left_out_are_all_there_is(rows: list[list[int | None]]) -> None:
    found = selected("[*].rows[*].a", [{"rows": [{"a": one} for one in row]} for row in rows])
    if found.unmatched is None:
        assert sum(map(len, json.loads(str(found.text)))) + found.nulls == sum(map(len, rows))


def test_a_column_that_exists_nowhere_is_named() -> None:
    assert told("cards[].{id: card_id, n: name}") == f"[None of 4 items has the key name. Keys: {CARD}.]"
    assert told("cards[].[card_id, name]") == f"[None of 4 items has the key name. Keys: {CARD}.]"
    assert told("cards[].{id: card_id, x: at.x}") == ""
    assert told("{n: next, t: total}") == ""
    assert told("cards[].{id: card_id, n: name} | [0].id") == ""


def test_remarks_survive_their_way_from_another_process() -> None:
    for expression in ("card", "cards[?blocked]", "cards[].owner", "cards[].{a: title, b: c}", "total"):
        found = selected(expression)
        assert Selection.of(found.text, found.remarks()) == found
        assert b"\n" not in found.remarks()


def test_a_reason_that_takes_too_many_steps_to_find_is_left_out() -> None:
    many = {"cards": [{"title": "a"}] * 900}
    assert "none of 900 items" in told("cards[].titel", many)
    found = Projection("cards[].titel", Limits(expression_steps=1_850)).selection(many)
    assert found.notice(COUNT) == "[select matched nothing. Keys: {cards[]: {title}}.]"


STRANGE = "\U000e0001 \ud83d " * 200


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("expression", ["x", "[:1000].x", f'"{STRANGE}"', f'{{a: type(@), b: "{STRANGE}"}}', "a.x"])
def test_a_notice_is_short_whatever_the_result_and_the_expression(name: str, expression: str) -> None:
    found = selected(expression, HOSTILE[name])
    notice = found.notice(COUNT, "r0123456789", is_call=True)
    assert COUNT(notice) <= (140 if found.shown is None else SELECTED_ROOM)
    assert notice.endswith('read_result(result_id="r0123456789")]')
    assert notice.isprintable()
