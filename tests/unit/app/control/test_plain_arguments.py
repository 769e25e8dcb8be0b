"""`key=value` becomes what a tool's schema wants."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_optimizer.app.control.answers import typed_arguments
from mcp_optimizer.errors import InvalidRequest

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": ["number", "null"]},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object"},
        "odd": True,
    },
}


def test_values_get_the_types_of_the_schema() -> None:
    given = [("text", "5"), ("count", "5"), ("share", "0.5"), ("deep", "True"), ("where", '{"a": 1}')]
    expected = {"text": "5", "count": 5, "share": 0.5, "deep": True, "where": {"a": 1}}
    assert typed_arguments(given, SCHEMA) == expected


def test_a_list_is_given_by_repeating_its_key_or_as_json() -> None:
    given = [("tags", "a=b"), ("tags", "2"), ("sizes", "[1, 2]")]
    assert typed_arguments(given, SCHEMA) == {"tags": ["a=b", "2"], "sizes": [1, 2]}


def test_what_the_schema_does_not_say_stays_text() -> None:
    assert typed_arguments([("odd", "1"), ("new", "2")], SCHEMA) == {"odd": "1", "new": "2"}
    assert typed_arguments([("x", "1")], {"properties": "nonsense"}) == {"x": "1"}


def test_a_null_is_a_value_where_it_is_allowed() -> None:
    assert typed_arguments([("share", "null")], SCHEMA) == {"share": None}


@pytest.mark.parametrize("pair", [("count", "many"), ("where", "{"), ("where", "[" * 100_000)])
def test_a_value_of_the_wrong_type_is_refused_without_repeating_it(pair: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=f"'{pair[0]}' has to be of type") as refused:
        typed_arguments([pair], SCHEMA)
    assert pair[1] not in str(refused.value)


def test_a_key_that_is_no_list_is_given_once() -> None:
    with pytest.raises(InvalidRequest, match="given twice"):
        typed_arguments([("text", "a"), ("text", "b")], SCHEMA)
