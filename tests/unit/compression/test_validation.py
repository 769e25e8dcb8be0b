"""Values are checked against their schema, and no schema or value can make the check use unlimited time or memory."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from mcp_optimizer.compression.validation import SchemaCheck, parts
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidArguments
from mcp_optimizer.gateway.arguments import ArgumentCheck


def nested(depth: int, inner: Any = "end") -> Any:
    for _ in range(depth):
        inner = {"x": inner}
    return inner


def doubling(keyword: str) -> dict[str, Any]:
    """Each definition applies the next one twice to the same value."""
    twice = {f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**twice, "d40": {"type": "string"}}}


def either(keyword: str) -> dict[str, Any]:
    """A recursive schema with two ways to match each level."""
    holder = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}
    ways = [{**holder, "additionalProperties": False}, holder, {"type": "integer"}]
    return {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {keyword: ways}}}


UNEVALUATED = {
    "properties": {"a": {"$ref": "#/$defs/a"}},
    "$defs": {
        "a": {
            "allOf": [{"properties": {"x": {"$ref": "#/$defs/a"}}}] * 2,
            "unevaluatedProperties": False,
        }
    },
}
CHAIN = {
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(20_000)},
}
MANY = [f"value {at}" for at in range(40_000)]

HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "2^40 visits, and the value fits": (doubling("allOf"), {"a": "text"}),
    "2^40 visits, and the value does not fit": (doubling("allOf"), {"a": 1}),
    "2^40 ways": (doubling("anyOf"), {"a": 1}),
    "2^40 ways, one of which must fit": (doubling("oneOf"), {"a": "text"}),
    "2^200 ways to hold itself": (either("anyOf"), {"a": nested(200)}),
    "2^200 ways to hold itself, exactly one": (either("oneOf"), {"a": nested(200)}),
    "members that are looked at again and again": (UNEVALUATED, {"a": nested(60)}),
    "a chain of references": (CHAIN, {"a": 1}),
    "each of many in each of many": (
        {"properties": {"a": {"items": {"anyOf": [{"const": one} for one in MANY]}}}},
        {"a": list(range(40_000))},
    ),
    "thousands of patterns": ({"properties": {one: {"pattern": rf"^\p{{L}}{{200}}{one}"} for one in MANY[:9_000]}}, {}),
    "a pattern without end": ({"properties": {"a": {"pattern": "((a{1,500}){1,500}){1,500}"}}}, {"a": "a"}),
    "a pattern that goes back and forth": ({"properties": {"a": {"pattern": r"^(a*)*\1b$"}}}, {"a": "a" * 5_000}),
    "a reference that only another scope explains": (
        {"$defs": {"a": {"$id": "urn:a", "allOf": [{"$ref": "#"}] * 2}}, "$ref": "#/$defs/a"},
        {"a": 1},
    ),
}


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_too_much_to_check_is_left_to_its_server(name: str) -> None:
    schema, value = HOSTILE[name]
    ArgumentCheck().check(value, McpTool(name="t", inputSchema={"type": "object", **schema}), name)


WRONG: dict[str, tuple[dict[str, Any], Any, str]] = {
    "one value of a hundred thousand": (
        {"properties": {"a": {"items": {"type": "string"}}}},
        {"a": ["text"] * 100_000 + [1]},
        "a.100000: 1 is not of type",
    ),
    "a hundred thousand values": (
        {"properties": {"a": {"items": {"type": "string"}}}},
        {"a": list(range(100_000))},
        "a.0: 0 is not of type",
    ),
    "each of many ways": (
        {"properties": {"a": {"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}},
        {"a": list(range(100_000))},
        "they do not fit the schema",
    ),
    "forty thousand missing": ({"required": MANY}, {}, "is a required property"),
    "a value of many": ({"properties": {"a": {"enum": MANY}}}, {"a": "none of them"}, "'?none of them"),
    "a long text": ({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 3_000_000}, "is not of type"),
    "a long name": ({"additionalProperties": {"type": "integer"}}, {"x" * 1_000_000: "x"}, "is not of type"),
    "a pattern": ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 50_000 + "b"}, "does not match"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_shortly_however_much_is_wrong(name: str) -> None:
    schema, value, said = WRONG[name]
    with pytest.raises(InvalidArguments, match=said) as refused:
        ArgumentCheck().check(value, McpTool(name="t", inputSchema={"type": "object", **schema}), name)
    assert len(str(refused.value)) < 3_000


ORDINARY = [
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string", "maxLength": 3}}},
    {"properties": {"x": {"$ref": "#"}}, "additionalProperties": False},
    either("anyOf"),
    either("oneOf"),
    {"allOf": [{"properties": {"x": {"type": "object"}}}], "unevaluatedProperties": False},
    {"propertyNames": {"maxLength": 1}, "patternProperties": {"^a": {"type": "integer"}}},
    {"if": {"required": ["x"]}, "then": {"required": ["a"]}, "else": {"maxProperties": 1}},
    {"$ref": "http://127.0.0.1:9/elsewhere.json"},
    {"type": 12},
]
VALUES: list[Any] = [
    {},
    {"a": "abc"},
    {"a": "abcd"},
    {"a": 7},
    {"x": {}},
    nested(3, {}),
    nested(3),
    {"a": nested(4, 1)},
    {"a": nested(4)},
    {"a": 1, "x": {}},
    {"long": 1},
]


@pytest.mark.parametrize("schema", ORDINARY, ids=str)
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_ordinary_schemas_are_checked_completely(schema: dict[str, Any], value: Any) -> None:
    """The result is the same as that of the validator alone."""
    try:
        expected = jsonschema_rs.validator_for(schema, offline=True).is_valid(value)
    except ValueError:
        expected = True
    assert SchemaCheck(schema).admits(value) is expected


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 1), ({}, 1), ({"a": [1, {"b": None}], "c": "d"}, 6), ([[[]], []], 4)],
)
def test_values_are_counted_with_all_that_they_contain(value: Any, number: int) -> None:
    assert parts(value, 100) == number


def test_counting_stops_soon_after_enough() -> None:
    rows = [[number] * 100 for number in range(4_000)]
    assert 5_000 < parts(rows, 5_000) <= 5_100
