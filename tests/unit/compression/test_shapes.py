"""Shapes of results: what a schema or results say of the keys, merged, stored, and written for a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.compression.shape_sources import shape_of_schema, shape_of_value
from mcp_optimizer.compression.shapes import (
    Shape,
    described,
    from_text,
    merged,
    to_text,
    without_data,
    without_envelope,
    written,
)

CARDS = {
    "total": 2,
    "cards": [
        {"card_id": 1, "title": "Paint", "owner_user_id": None, "tags": ["a"]},
        {"card_id": 2, "title": "Sand", "owner_user_id": 7, "tags": [], "due": "2026-11-01"},
    ],
}


def learned(*values: Any) -> Shape:
    """What may be kept after these results."""
    seen = shape_of_value(values[0])
    for value in values[1:]:
        seen = merged(seen, shape_of_value(value))
    return without_data(seen)


def declared(schema: dict[str, Any]) -> str:
    found = shape_of_schema(schema)
    return "" if found is None else written(found)


def test_a_result_is_written_by_its_keys_those_first_that_are_always_there() -> None:
    shape = learned(CARDS, CARDS)
    assert written(shape) == "{total, cards[]: {card_id, title, tags[], owner_user_id?, due?}}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], "[{id, name}]"),
        ("done", "str"),
        (3, "num"),
        (True, "bool"),
        (["a"], "[str]"),
        ([1, "a"], "[num|str]"),
        ([[1]], "[[num]]"),
        ({}, "{}"),
        ([], "[]"),
        ({"rows": [[1, "a"]], "total": 1}, "{rows[][], total}"),
        ({"repo": {"id": 1, "owner": {"id": 1, "login": "x"}}, "total": 1}, "{repo: {id, owner: {id, login}}, total}"),
    ],
)
def test_every_kind_of_json_has_its_notation(value: Any, text: str) -> None:
    assert written(learned(value, value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"alice": {"role": "dev", "age": 3}, "bob": {"role": "ops", "age": 4}}, "{*: {role, age}}"),
        ({"AAPL": 189.2, "MSFT": 411}, "{*: num}"),
        ({"alice": "admin"}, "{*: str}"),
        ({"users": {"alice@example.org": {"id": 1, "name": "A"}}}, "{users: {*: {id, name}}}"),
        ({f"key{n}": n if n % 2 else "x" for n in range(41)}, "{*: num|str}"),
        ({"U02": None, "U03": 3, "U04": None}, "{*: num}"),
    ],
)
def test_the_keys_of_a_map_are_data_and_left_out(value: Any, text: str) -> None:
    assert written(learned(value, value)) == text


def test_in_an_object_that_could_be_a_map_only_names_of_fields_are_kept() -> None:
    hit = {"title": "a", "url": "b", "alice": "c"}
    assert written(learned([hit, hit])) == "[{title, url, ...}]"


def test_a_key_that_was_in_one_object_only_is_not_kept() -> None:
    once = learned({"id": 1, "alice": "x"}, {"id": 2, "bob": "x"})
    assert written(once) == "{id, ...}"
    assert "alice" not in to_text(once)
    assert written(learned({"id": 1, "alice": "x"})) == ""


def test_where_one_object_was_a_map_the_keys_of_all_are_data() -> None:
    shape = learned([{"alice": 3, "bob": "n/a"}, {"alice": 3, "bob": 4}, {"alice": 3, "bob": "n/a"}])
    assert written(shape) == "[{*: num|str}]"


def test_only_plain_keys_are_shown() -> None:
    odd = ["a b", "x\ny", "<b>", "k" * 41, "k" * 1_000_000, "user_123456", "\x1b[31m", "é"]
    value = {**dict.fromkeys(odd, 1), "id": 1, **{f"k{n}": "s" for n in range(9)}}
    assert written(learned(value, value)) == "{id, k0, k1, k2, k3, k4, k5, k6, k7, k8, ...}"
    schema = {"type": "object", "properties": {key: {} for key in [*odd, "id"]}, "required": odd}
    assert declared(schema) == "{id?, ...}"


def test_the_envelope_of_python_servers_is_not_shown() -> None:
    assert written(without_envelope(learned({"result": [1, 2]}, {"result": [3]}))) == "[num]"
    inner = {"type": "array", "items": {"type": "object", "properties": {"id": {}}, "required": ["id"]}}
    assert declared({"type": "object", "properties": {"result": inner}, "required": ["result"]}) == "[{id}]"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, "{b, a?}"),
        ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, "{a?}"),
        ({"type": "object"}, ""),
        ({}, ""),
        ({"type": "array", "items": {"type": "object"}}, "[{...}]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{*: num}"),
        ({"type": "object", "patternProperties": {"^x": {"properties": {"a": {}}}}}, "{*: {a?}}"),
        ({"enum": ["a", 1]}, "num|str"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, "[num|str]"),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}}, "{a?, ...}"),
        ({"anyOf": [{"properties": {"a": {}}}, {"additionalProperties": {}, "type": "object"}]}, "{a?, ...}"),
        ({"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"a": {}}, "required": ["a"]}}}, "{a}"),
        ({"type": "object", "allOf": [{"properties": {"a": {}}}, {"required": ["a"]}]}, "{a?}"),
        (
            {
                "anyOf": [
                    {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
                    {"properties": {"a": {}}, "required": ["a"]},
                    {"type": "null"},
                ]
            },
            "{a, b?}",
        ),
        (
            {
                "type": "object",
                "properties": {"id": {}, "children": {"type": "array", "items": {"$ref": "#"}}},
                "required": ["id"],
            },
            "{id, children?[]: {id, children?[]: {id, children?[]}}}",
        ),
    ],
)
def test_a_schema_is_read_with_its_references_and_unions(schema: dict[str, Any], text: str) -> None:
    assert declared(schema) == text


def test_without_a_schema_there_is_no_declared_shape() -> None:
    assert shape_of_schema(None) is None


def test_a_shape_keeps_to_its_room_and_says_that_there_is_more() -> None:
    record = {"type": "object", "properties": {f"property_{n}": {} for n in range(50)}}
    schema = {
        "type": "object",
        "properties": {**{f"field_{n}": {"type": "string"} for n in range(30)}, "rows": {"items": record}},
        "required": ["field_29", "rows"],
    }
    text = declared(schema)
    assert len(text) < 160
    assert text.startswith("{field_29, rows[]: {property_0?, property_1?")
    assert text.endswith(", ...}")
    found = shape_of_schema(schema)
    assert found is not None
    assert len(written(found, 60)) < 80


def test_what_a_schema_leaves_open_is_filled_by_what_was_learned() -> None:
    schema = {"properties": {"success": {}, "data": {"type": "object"}}, "required": ["success"]}
    seen = learned({"success": True, "data": CARDS}, {"success": True, "data": CARDS})
    assert described(shape_of_schema(schema), seen).startswith("{success, data?: {total, cards[]: {card_id, title,")
    assert described(shape_of_schema({"type": "object"}), learned(CARDS, CARDS)).startswith("{total, cards[]")
    assert described(shape_of_schema({"properties": {"a": {}}}), learned(CARDS, CARDS)) == "{a?}"
    assert described(None, None) == ""


def test_a_stored_shape_is_read_as_it_was_written() -> None:
    for shape in (learned(CARDS, CARDS), learned({"a": [], "b": 1}, {"a": [], "b": 1}), learned({"x": {"y": 1}})):
        assert from_text(to_text(shape)) == shape


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"members": 3}', '{"members": {"a": 1}}', '{"items":' * 2_000])
def test_what_is_no_stored_shape_is_none(text: str) -> None:
    assert from_text(text) is None


def test_a_stored_shape_with_keys_that_are_not_plain_is_read_without_them() -> None:
    shape = from_text(json.dumps({"objects": 2, "members": {"<b>": [2, {}], "id": [2, {}]}}))
    assert shape is not None
    assert written(shape) == "{id}"
