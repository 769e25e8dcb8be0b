"""What is wrong with an expression is said before the call where it can be, and never with the value itself."""

from __future__ import annotations

import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.results.projection import Projection


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("items[[", "Parse error"),
        ("nothing(items)", r"there is no function nothing\(\)"),
        ("items[].{n: size(name)}", r"there is no function size\(\)"),
        ("length()", r"length\(\) takes 1 arguments, not 0"),
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
