"""Errors in an expression are reported before the call where possible, and never contain the value itself."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import jmespath
import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.projection import Projection

PEOPLE = {
    "people": [
        {"name": "Ann", "age": 41, "tags": ["a", "b"], "at": {"city": "Oslo", "zip": None}},
        {"name": "Bob", "age": 7, "tags": [], "at": {"city": "Bern"}},
        {"name": "Cleo", "age": 41, "tags": [["c"], "b"], "at": None},
    ],
    "none": None,
}

CASES = [
    "people[?age > `10` && at].name",
    "people[?age == `41` || name == 'Bob'].[name, age]",
    "people[?!at || tags == `[]`].name",
    "people[].tags[]",
    "people[*].tags[][]",
    "people[::-1].name",
    "people[1:].{n: name, c: at.city}",
    "people[*].at.*",
    "sort_by(people, &name)[-1].name",
    "[max_by(people, &age).name, min_by(people, &age).name, max(people[].age), min(people[].name)]",
    "[avg(people[].age), sum(people[].age), length(people), abs(`-3`), ceil(`1.2`), floor(`1.8`)]",
    "[contains(people[0].tags, 'a'), contains(people[2].tags, `[\"c\"]`), contains('abc', 'b')]",
    "[starts_with('abc', 'a'), ends_with('abc', 'b'), reverse('abc'), reverse(people[].age)]",
    "map(&to_string(@), people[].at)",
    "join(', ', people[].name) | to_array(@)",
    "merge(people[0].at, people[1].at, {x: `1`})",
    "[keys(people[1].at), values(people[1].at), type(none), not_null(none, people[1].age)]",
    "[to_number('12'), to_number('x'), to_string('x'), people[9], nothing.here[*], sort(people[].name)]",
    "people[?tags != `null`] | [0].name",
]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("items[[", "Parse error"),
        ("nothing(items)", r"there is no function nothing\(\)"),
        ("items[].{n: size(name)}", r"there is no function size\(\)"),
        ("length()", r"length\(\) takes 1 argument, not 0"),
        ("not_null()", r"not_null\(\) takes 1 or more arguments, not 0"),
    ],
)
def test_a_bad_expression_is_refused_before_it_is_applied(expression: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        Projection(expression)


def test_an_error_names_kinds_of_values_and_never_holds_the_value() -> None:
    with pytest.raises(InvalidRequest, match=r"abs\(\) takes number, not object") as refused:
        Projection("abs(@)").of({"secret": "x" * 10_000})
    assert len(str(refused.value)) < 200


def test_what_an_expression_selects() -> None:
    value = {"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}
    assert Projection("items[?id > `1`].{n: name}").of(value) == [{"n": "b"}]
    assert Projection("items[:1].name").of(value) == ["a"]
    assert Projection("[length(items), sum(items[].id)]").of(value) == [2, 3]


def doubled(times: int) -> str:
    """An expression whose every pipe doubles the size of the value."""
    return "|".join(["[@,@]"] * times)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("a" + ".a" * 300_000, "600,001 characters, maximum 2,000"),
        ("|".join(["a"] * 900), "nested too deeply"),
        ("||".join(["a"] * 600), "nested too deeply"),
        ("(" * 900 + "a" + ")" * 900, "nested too deeply"),
        ("!" * 1_900 + "a", "nested too deeply"),
    ],
)
def test_an_expression_that_is_too_long_or_too_deep_is_refused_before_it_is_applied(
    expression: str, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        Projection(expression)


TEXTS = ["a" * 50_000 + "b", "a" * 50_000 + "c"]
MANY = [[1] * 1_000] * 1_000

COSTLY: dict[str, tuple[str, Any]] = {
    "the same value a billion times": (doubled(30), 1),
    "the same value a billion times, as text": (doubled(30) + "|to_string(@)", 1),
    "two equal values of a billion parts": (f"[{doubled(30)}, {doubled(30)}] | [0] == [1]", 1),
    "a value of a billion parts looked for": (f"[[{doubled(30)}], {doubled(30)}] | contains([0], [1])", 1),
    "a text of ten gigabytes": ("join(a, b)", {"a": "x" * 100_000, "b": ["y"] * 100_000}),
    "a long text, turned round often": ("map(&reverse(@), @)", ["x" * 100_000] * 200),
    "a list of a hundred million members": ("map(&@, @)[][]", [MANY] * 100),
    "long texts sorted": ("sort(@)", TEXTS * 10_000),
    "long texts to sort by": ("sort_by(@, &@)", TEXTS * 10_000),
    "long texts compared": ('map(&(@ < `"b"`), @) | [?@ == @]', TEXTS * 1_000_000),
    "more members than steps": ("[*].map(&@, @)", MANY * 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTLY)
def test_an_expression_that_takes_or_makes_too_much_is_stopped_before_it_does(name: str) -> None:
    expression, value = COSTLY[name]
    projection = Projection(expression, Limits(expression_steps=200_000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=r"select (exceeds 200,000 steps|produces more than 10,000,000)"):
            projection.text_of(value)
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("&a", {}),
        ("to_array(&a)", {}),
        ("ceil(to_number('inf'))", {}),
        ("avg([to_number(@)])", "1" * 4_000),
    ],
)
def test_what_an_expression_makes_that_is_no_json_is_an_error_of_that_expression(expression: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be applied to this result|cannot be written as JSON"):
        Projection(expression).text_of(value)


def test_a_value_that_is_held_many_times_and_still_small_is_selected() -> None:
    assert len(json.loads(Projection(doubled(10) + "[]" * 9).text_of(7))) == 1_024


@pytest.mark.parametrize("case", CASES)
def test_the_budget_changes_nothing_that_an_expression_selects(case: str) -> None:
    """The result is the same as that of jmespath itself."""
    assert Projection(case).of(PEOPLE) == jmespath.search(case, PEOPLE)
