"""count_by, group_by and sum_by: what they return, what they refuse, and that a hostile use of them is stopped."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.projection import Projection

CARDS = {
    "cards": [
        {"id": 1, "owner": "bo", "points": 2, "labels": ["x"]},
        {"id": 2, "owner": "anna", "points": 0.1, "labels": []},
        {"id": 3, "owner": None, "points": None},
        {"id": 4, "owner": "anna", "points": 0.2},
        {"id": 5, "points": 8},
        {"id": 6, "owner": "anna", "points": 1},
    ]
}


def selected(expression: str, value: Any = CARDS) -> Any:
    return json.loads(Projection(expression).text_of(value))


def test_count_by_counts_the_elements_of_each_key_largest_first() -> None:
    assert list(selected("count_by(cards, &owner)").items()) == [("anna", 3), ("null", 2), ("bo", 1)]
    assert selected("cards[?points > `1`] | count_by(@, &owner)") == {"bo": 1, "null": 1}


def test_group_by_returns_the_elements_of_each_key_in_their_order() -> None:
    groups = selected("group_by(cards, &owner)")
    assert list(groups) == ["bo", "anna", "null"]
    assert [card["id"] for card in groups["anna"]] == [2, 4, 6]
    assert [card["id"] for card in groups["null"]] == [3, 5]


def test_sum_by_adds_the_numbers_of_each_key_largest_first() -> None:
    sums = selected("sum_by(cards, &owner, &points)")
    assert list(sums) == ["null", "bo", "anna"]
    assert sums == {"null": 8, "bo": 2, "anna": pytest.approx(1.3)}
    assert selected("sum_by(@, &a, &b)", [{"a": "x", "b": 0.1}] * 10) == {"x": 1.0}


def test_keys_that_are_not_text_are_written_as_json() -> None:
    keys = [1, 1, 2.5, True, False, None, "text"]
    assert selected("count_by(@, &@)", keys) == {"1": 2, "2.5": 1, "true": 1, "false": 1, "null": 1, "text": 1}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("count_by(cards, &labels)", r"count_by\(\) cannot group by lists, only by texts"),
        ("group_by(cards, &@)", r"group_by\(\) cannot group by objects, only by texts"),
        ("sum_by(cards, &id, &owner)", r"sum_by\(\) takes number or null, not string"),
        ("count_by(nothing, &owner)", r"count_by\(\) takes array, not null"),
    ],
)
def test_what_cannot_be_grouped_is_named(expression: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        selected(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("count_by(cards)", r"count_by\(\) takes 2 arguments, not 1"),
        ("sum_by(cards, &owner)", r"sum_by\(\) takes 3 arguments, not 2"),
        ("group_by(cards, owner)", r"argument 2 of group_by\(\) must begin with &, as in group_by\(items, &key\)"),
        ("map(cards, &owner)", r"argument 1 of map\(\) must begin with &, as in map\(&key, items\)"),
        ("groupby(cards, &owner)", r"there is no function groupby\(\); group_by\(\) exists"),
        ("count(cards)", r"no function count\(\); length\(\) and count_by\(\) exist"),
        ("x" * 1_900 + "(cards)", r"there is no function x{40}\(\)\. Examples: .*count_by\(items, &status\)"),
    ],
)
def test_a_misused_function_is_refused_before_anything_is_called(expression: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        Projection(expression)
    assert len(str(refused.value)) < 300


LONG = ["a" * 50_000 + str(number) for number in range(2)]

COSTLY: dict[str, tuple[str, Any]] = {
    "the same list grouped again and again": ("map(&group_by(@, &to_string(@)), @)", [list(range(1_000))] * 1_000),
    "long keys": ("count_by(@, &k)", [{"k": key} for key in LONG] * 5_000),
    "long numbers as keys": ("count_by(@, &@)", [10**4_000 + number for number in range(2)] * 10_000),
    "groups of groups": ("|".join(["[group_by(@, &'a'), group_by(@, &'b')]"] * 30), [1]),
    "sums of long lists": ("map(&sum_by(@, &'a', &@), @)", [[1] * 1_000] * 1_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_grouping_is_stopped_before_it_takes_too_much(name: str) -> None:
    expression, value = COSTLY[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=r"select (exceeds 200,000 steps|produces more than 10,000,000)"):
            Projection(expression, Limits(expression_steps=200_000)).text_of(value)
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()


KEYS = st.none() | st.booleans() | st.integers(0, 3) | st.text("01ab", max_size=2)
ROWS = st.lists(st.fixed_dictionaries({"k": KEYS, "n": st.none() | st.integers()}), max_size=20)


@given(ROWS)
def test_no_element_is_lost_and_none_counts_twice(rows: list[dict[str, Any]]) -> None:
    groups = Projection("group_by(@, &k)").of(rows)
    assert sorted(id(row) for group in groups.values() for row in group) == sorted(map(id, rows))
    assert Projection("count_by(@, &k)").of(rows) == {key: len(group) for key, group in groups.items()}
    sums = Projection("sum_by(@, &k, &n)").of(rows)
    assert sums == {key: sum(row["n"] or 0 for row in group) for key, group in groups.items()}
    assert list(sums.values()) == sorted(sums.values(), reverse=True)


def test_a_number_and_its_text_are_different_keys() -> None:
    rows = [{"k": key} for key in ("1", 1, None, "null", True, "true", "1", 2)]
    found = Projection("count_by(@, &k)").of(rows)
    assert found == {"1": 2, "(1)": 1, "(null)": 1, "null": 1, "(true)": 1, "true": 1, "2": 1}
