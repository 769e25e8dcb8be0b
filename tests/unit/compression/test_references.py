"""References are expanded, left alone, or created."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from mcp_optimizer.compression.references import (
    drop_unused_definitions,
    inline_references,
    is_free_to_move,
    references,
    resolve,
    share_repeated,
)
from tests.unit.compression.cases import admits, any_schema, nested

TEXT = {"type": "string"}


def _with_defs(properties: dict[str, Any], **definitions: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "$defs": definitions}


def test_a_reference_is_replaced_by_what_it_points_at() -> None:
    schema = _with_defs(
        {"a": {"$ref": "#/$defs/A"}}, A={"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}, B=TEXT
    )
    inlined = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}}
    assert inline_references(schema) == inlined


def test_words_beside_a_reference_are_kept_with_those_of_its_target() -> None:
    target = {"type": "string", "description": "A colour.", "title": "Colour"}
    schema = _with_defs({"a": {"$ref": "#/$defs/A", "description": "Of the card.", "title": "Of it"}}, A=target)
    inlined = inline_references(schema)["properties"]["a"]
    assert inlined == {"type": "string", "description": "Of the card. A colour.", "title": "Of it"}
    plain = inline_references(_with_defs({"a": {"$ref": "#/$defs/A", "default": "x"}}, A=target))
    assert plain["properties"]["a"] == {**target, "default": "x"}


def test_a_reference_with_other_keywords_beside_it_stays() -> None:
    schema = _with_defs({"a": {"$ref": "#/$defs/A", "minLength": 2}}, A=TEXT)
    assert inline_references(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        _with_defs({"a": {"$ref": "#/$defs/A"}}, A={"properties": {"a": {"$ref": "#/$defs/A"}}}),
        _with_defs(
            {"a": {"$ref": "#/$defs/A"}}, A={"items": {"$ref": "#/$defs/B"}}, B={"items": {"$ref": "#/$defs/A"}}
        ),
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "other.json#/a"}}},
    ],
)
def test_a_reference_without_end_or_target_stays(schema: dict[str, Any]) -> None:
    inlined = inline_references(schema)
    assert list(references(inlined))
    assert all(resolve(inlined, one) is not None or resolve(schema, one) is None for one in references(inlined))


def test_recursive_schemas_admit_the_same_when_inlined() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/T"}, "leaf": {"$ref": "#/$defs/L"}},
        "required": ["leaf"],
    }
    schema = _with_defs({"tree": {"$ref": "#/$defs/T"}}, T=tree, L={"type": "integer"})
    inlined = inline_references(schema)
    for value in (
        {"tree": {"leaf": 1, "left": {"leaf": 2}}},
        {"tree": {"leaf": 1, "left": {}}},
        {"tree": {"leaf": "x"}},
    ):
        assert admits(inlined, value) == admits(schema, value)


def test_values_that_look_like_references_are_values() -> None:
    value = {"$ref": "#/$defs/A"}
    schema = _with_defs({"a": {"enum": [value], "default": value}, "$ref": {"$ref": "#/$defs/A"}}, A=TEXT)
    inlined = inline_references(schema)
    assert inlined["properties"] == {"a": {"enum": [value], "default": value}, "$ref": TEXT}


@pytest.mark.parametrize(
    "part",
    [
        {"$id": "urn:inner", "$defs": {"A": {"type": "integer"}}, "items": {"$ref": "#/$defs/A"}},
        {"id": "http://x/inner", "items": {"$ref": "#/$defs/A"}},
        {"$anchor": "here", "type": "string"},
        {"$dynamicRef": "#A"},
        nested(70),
    ],
)
def test_where_a_reference_may_mean_something_else_nothing_is_touched(part: dict[str, Any]) -> None:
    schema = _with_defs({"a": part, "b": {"$ref": "#/$defs/A"}}, A=TEXT, unused=TEXT)
    assert not is_free_to_move(schema)
    assert inline_references(schema) == schema
    assert drop_unused_definitions(schema) == schema
    assert share_repeated(schema, len) == schema


def test_parts_are_bound_by_references_to_the_middle_of_a_schema() -> None:
    assert is_free_to_move(_with_defs({"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#"}}, A=TEXT))
    for reference in ("#/properties/a", "#/$defs/A/items", "#/$defs", "#A", "urn:x", "#/definitions"):
        assert not is_free_to_move(_with_defs({"b": {"$ref": reference}}, A=TEXT))


def test_references_that_multiply_are_not_written_out() -> None:
    definitions = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 10} for n in range(9)}
    schema = _with_defs({"a": {"$ref": "#/$defs/l0"}}, **definitions, l9=TEXT)
    assert inline_references(schema) == schema


def test_some_references_can_be_kept() -> None:
    schema = _with_defs({"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}}, A=TEXT, B={"type": "integer"})
    kept = inline_references(schema, keep={"#/$defs/B"})
    assert kept == _with_defs({"a": TEXT, "b": {"$ref": "#/$defs/B"}}, B={"type": "integer"})


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", "root"),
        ("#/$defs/a b", 1),
        ("#/%24defs/a%20b", 1),
        ("#/$defs/x~1y", 2),
        ("#/$defs/x~0y", 3),
        ("#/anyOf/1", "second"),
        ("#/anyOf/2", None),
        ("#/anyOf/x", None),
        ("#/$defs/none", None),
        ("#/title/x", None),
        ("urn:x", None),
    ],
)
def test_a_reference_is_resolved_as_a_pointer(reference: str, found: Any) -> None:
    root = {"$defs": {"a b": 1, "x/y": 2, "x~y": 3}, "anyOf": ["first", "second"], "title": "t"}
    assert resolve(root, reference) == (root if found == "root" else found)


def test_definitions_that_nothing_reaches_go() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A%20b"}, "c": {"$ref": "#/definitions/C/items"}},
        "$defs": {"A b": TEXT, "B": {"$ref": "#/$defs/D"}, "D": TEXT},
        "definitions": {"C": {"items": TEXT}, "E": TEXT},
    }
    kept = drop_unused_definitions(schema)
    assert kept == {**schema, "$defs": {"A b": TEXT}, "definitions": {"C": {"items": TEXT}}}


def test_definitions_stay_when_a_reference_could_reach_any() -> None:
    for reference in ("#anchor", "urn:x", "#/$defs"):
        schema = _with_defs({"a": {"$ref": reference}}, A=TEXT)
        assert drop_unused_definitions(schema) == schema
    assert drop_unused_definitions({"$defs": "junk"}) == {"$defs": "junk"}
    assert drop_unused_definitions(_with_defs({"a": {"$ref": "#"}}, A=TEXT)) == {
        "type": "object",
        "properties": {"a": {"$ref": "#"}},
    }


LONG = {"type": "object", "properties": {f"field_{n}": {"type": "string", "maxLength": 50 + n} for n in range(5)}}


@pytest.mark.requirement("B2", "CT-2")
def test_what_stands_twice_is_written_once() -> None:
    schema = {"type": "object", "properties": {"a": LONG, "b": LONG, "c": TEXT}}
    shared = share_repeated(schema, len)
    assert shared["properties"] == {"a": {"$ref": "#/$defs/d0"}, "b": {"$ref": "#/$defs/d0"}, "c": TEXT}
    assert shared["$defs"] == {"d0": LONG}
    assert inline_references(shared) == schema


def test_what_differs_in_its_description_only_shares_the_rest() -> None:
    described = {**LONG, "description": "The other one"}
    schema = {"type": "object", "properties": {"a": LONG, "b": described}}
    shared = share_repeated(schema, len)
    assert shared["properties"]["b"] == {"description": "The other one", "$ref": "#/$defs/d0"}
    assert inline_references(shared)["properties"]["b"] == described


def test_shared_definitions_take_no_name_that_is_taken() -> None:
    schema = {"properties": {"a": LONG, "b": LONG, "c": {"$ref": "#/$defs/d0"}}, "$defs": {"d0": TEXT}}
    assert share_repeated(schema, len)["$defs"] == {"d0": TEXT, "d1": LONG}


def test_nothing_is_shared_where_it_does_not_pay_or_cannot() -> None:
    for schema in ({"properties": {"a": TEXT, "b": TEXT}}, {"properties": {"a": LONG, "b": LONG}, "$defs": []}):
        assert share_repeated(schema, len) == schema
    assert share_repeated({"properties": {"a": LONG, "b": LONG}}, lambda _: 1) == {"properties": {"a": LONG, "b": LONG}}


@given(any_schema)
def test_any_junk_passes(junk: dict[str, Any]) -> None:
    for changed in (inline_references(junk), drop_unused_definitions(junk), share_repeated(junk, len)):
        json.dumps(changed)
