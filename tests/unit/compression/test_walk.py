"""Where schemas occur inside a schema."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from mcp_optimizer.compression.walk import DEEPEST, children, is_seen_whole, rewrite, schemas
from tests.unit.compression.cases import any_json, nested


def _marked(schema: Any, outside: frozenset[str] = frozenset()) -> Any:
    return rewrite(schema, lambda node: {**node, "seen": True}, outside)


def test_properties_named_like_keywords_are_properties() -> None:
    names = ["title", "enum", "description", "$ref", "properties", "items", "required", "default"]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    assert list(schemas(schema)) == [schema, *[{"type": "string"}] * len(names)]
    assert all(child["seen"] for child in _marked(schema)["properties"].values())


def test_values_are_never_taken_for_schemas() -> None:
    value = {"type": "object", "properties": {"a": {"type": "string"}}}
    for key in ("enum", "examples"):
        assert _marked({key: [value]}) == {key: [value], "seen": True}
    for key in ("const", "default", "example"):
        assert _marked({key: value}) == {key: value, "seen": True}


def test_every_keyword_that_holds_schemas_is_entered() -> None:
    leaf: dict[str, Any] = {"type": "string"}
    for key in ("items", "not", "if", "then", "else", "additionalProperties", "contains", "propertyNames"):
        assert _marked({key: leaf})[key]["seen"]
    for key in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
        assert [child["seen"] for child in _marked({key: [leaf, leaf]})[key]] == [True, True]
    for key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"):
        assert _marked({key: {"a": leaf}})[key]["a"]["seen"]


def test_boolean_schemas_and_lists_of_names_pass_unchanged() -> None:
    schema = {"properties": {"a": True}, "dependencies": {"a": ["b"]}, "items": False, "anyOf": "junk"}
    assert rewrite(schema, lambda node: node) == schema


def test_a_keyword_can_be_left_alone() -> None:
    marked = _marked({"not": {"a": 1}, "items": {}}, frozenset({"not"}))
    assert marked == {"not": {"a": 1}, "items": {"seen": True}, "seen": True}


def test_children_can_be_asked_for_by_keyword() -> None:
    schema = {"items": {"a": 1}, "properties": {"x": {"b": 1}}, "anyOf": [True], "type": "object"}
    assert list(children(schema)) == [{"a": 1}, {"b": 1}, True]
    assert list(children(schema, frozenset({"anyOf"}))) == [True]


def test_what_lies_too_deep_is_left_alone_and_known_to_be_there() -> None:
    assert is_seen_whole(nested(DEEPEST))
    deep = nested(DEEPEST + 1)
    assert not is_seen_whole(deep)
    assert len(list(schemas(deep))) == DEEPEST + 1
    assert rewrite(deep, lambda node: {key: value for key, value in node.items() if key != "title"}) == deep


@given(any_json)
def test_any_json_can_be_walked(junk: Any) -> None:
    assert rewrite(junk, lambda node: node) == junk
    assert all(isinstance(node, dict) for node in schemas(junk))
    assert is_seen_whole(junk)
