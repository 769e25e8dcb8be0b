"""What each technique leaves out, and that the schema still accepts the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.compression import lossless
from mcp_optimizer.compression.compress import SHRINKING
from mcp_optimizer.largejson.compact_json import compact
from tests.trying import at_most
from tests.unit.compression.cases import admits, any_json, any_schema, nested, valid_schemas, values

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
TEXT = {"type": "string"}
Apply = Callable[[dict[str, Any]], dict[str, Any]]

EXACT = [technique for technique in SHRINKING if technique.is_exact]


@given(valid_schemas(), st.lists(values, min_size=3, max_size=6))
def test_exact_techniques_admit_exactly_what_the_original_admits(schema: Any, some: list[Any]) -> None:
    for technique in EXACT:
        changed = technique.apply(schema)
        for value in some:
            assert admits(changed, value) == admits(schema, value), technique.name


@given(valid_schemas(), st.lists(values, min_size=3, max_size=6))
def test_all_techniques_together_never_admit_more(schema: Any, some: list[Any]) -> None:
    changed = schema
    for technique in SHRINKING:
        changed = technique.apply(changed)
    for value in some:
        assert admits(schema, value) or not admits(changed, value)


@given(any_schema)
def test_no_junk_makes_a_technique_fail(junk: dict[str, Any]) -> None:
    for technique in SHRINKING:
        assert isinstance(technique.apply(junk), dict)


def test_unknown_keywords_go_and_properties_of_such_names_stay() -> None:
    schema = {"$schema": DRAFT_7, "$comment": "c", "x-a": 1, "properties": {"x-a": {"$comment": "", "type": "string"}}}
    assert lossless.drop_unknown_keywords(schema) == {"properties": {"x-a": TEXT}}


@pytest.mark.parametrize(
    "part",
    [
        {"items": [TEXT]},
        {"additionalItems": False},
        {"dependencies": {"a": ["b"]}},
        {"unevaluatedProperties": False},
        {"$ref": "#/definitions/a", "minLength": 1},
    ],
)
def test_the_draft_stays_named_where_the_drafts_differ(part: dict[str, Any]) -> None:
    schema = {"$schema": DRAFT_7, "properties": {"a": part}}
    assert lossless.drop_unknown_keywords(schema)["$schema"] == DRAFT_7
    modern = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert "$schema" not in lossless.drop_unknown_keywords(modern)


def test_a_boolean_exclusive_minimum_keeps_its_draft_4() -> None:
    schema = {"$schema": DRAFT_4, "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}
    assert lossless.drop_unknown_keywords(schema) == schema
    assert not admits(schema, {"a": 1})
    assert "$schema" in lossless.drop_unknown_keywords({**schema, "properties": {"a": {"const": 1}}})
    assert "$schema" not in lossless.drop_unknown_keywords({**schema, "properties": {"a": TEXT}})
    assert "$schema" in lossless.drop_unknown_keywords({"$schema": "urn:mine", "if": TEXT})


def test_idle_keywords_go_and_false_is_not_zero() -> None:
    schema = {"required": [], "minLength": 0, "uniqueItems": 0, "minItems": False, "additionalProperties": {}}
    assert lossless.drop_idle_keywords(schema) == {"uniqueItems": 0, "minItems": False}
    assert lossless.drop_idle_keywords({"items": {}, "additionalProperties": True, "nullable": False}) == {}


def test_what_counts_as_evaluated_stays() -> None:
    schema = {"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False}
    assert lossless.drop_idle_keywords(schema) == schema


def test_titles_that_restate_go() -> None:
    schema = {
        "title": "ToolArguments",
        "properties": {
            "card_id": {"title": "Card Id"},
            "size": {"title": "Width", "description": "The width in pixels"},
            "x": {"title": "Horizontal"},
            "title": {"title": "Title", "type": "string"},
            "y": True,
        },
    }
    kept = lossless.drop_restating_titles(schema)
    assert kept == {
        "properties": {
            "card_id": {},
            "size": {"description": "The width in pixels"},
            "x": {"title": "Horizontal"},
            "title": TEXT,
            "y": True,
        }
    }


def test_descriptions_that_are_the_name_once_more_go() -> None:
    properties = {
        "job_id": {"description": "The ID of the job."},
        "limit": {"description": "Limit, at most 50"},
        "description": {"description": "Description"},
        "n": {"description": 5},
    }
    kept = lossless.drop_restating_descriptions({"properties": properties})["properties"]
    assert kept == {"job_id": {}, "limit": properties["limit"], "description": {}, "n": {"description": 5}}


NULLABLE = [
    {"anyOf": [TEXT, {"type": "null"}], "default": None},
    {"oneOf": [TEXT, {"type": "null"}], "default": None},
    {"type": ["string", "null"], "default": None},
    {"type": ["string", "integer", "null"], "default": None},
]


@pytest.mark.parametrize("nullable", NULLABLE)
def test_null_is_not_offered_where_leaving_out_says_the_same(nullable: dict[str, Any]) -> None:
    changed = lossless.omit_nulls_that_mean_nothing({"properties": {"a": nullable}})
    assert admits(changed, {"a": "text"})
    assert admits(changed, {})
    assert not admits(changed, {"a": None})
    assert "default" not in changed["properties"]["a"]


@pytest.mark.parametrize("nullable", NULLABLE)
@pytest.mark.parametrize(
    "frame",
    [
        lambda a: {"properties": {"a": a}, "required": ["a"]},
        lambda a: {"properties": {"a": a}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        lambda a: {"allOf": [{"properties": {"a": a}}, {"properties": {"a": {}}, "required": ["a"]}]},
        lambda a: {"properties": {"a": a}, "dependentRequired": {"b": ["a"]}},
        lambda a: {"properties": {"a": a}, "minProperties": 1},
        lambda a: {"not": {"properties": {"a": a}, "required": ["b"]}},
        lambda a: {"if": {"properties": {"a": a}}, "then": {"required": ["b"]}},
        lambda a: {"oneOf": [{"properties": {"a": a}}, {"properties": {"a": {"type": "null"}}}]},
        lambda a: {"not": {"$ref": "#/$defs/d"}, "$defs": {"d": {"properties": {"a": a}}}},
        lambda a: {"properties": {"a": {key: value for key, value in a.items() if key != "default"}}},
        lambda a: {"properties": {"a": {**a, "default": "x"}}},
    ],
)
def test_null_stays_where_it_says_something(nullable: dict[str, Any], frame: Apply) -> None:
    schema = frame(nullable)
    assert lossless.omit_nulls_that_mean_nothing(schema) == schema


def test_null_stays_where_two_branches_of_one_of_admit_it() -> None:
    overlapping = {"oneOf": [{"type": "null"}, {"type": ["string", "null"]}], "default": None}
    schema = {"properties": {"a": overlapping}}
    assert not admits(schema, {"a": None})
    assert not admits(lossless.omit_nulls_that_mean_nothing(schema), {"a": None})


def test_only_the_default_goes_where_null_is_all_there_is_or_an_enum_names_it() -> None:
    for rest in ({"type": ["null"]}, {"type": ["string", "null"], "enum": ["a", None]}, {"anyOf": [{"type": "null"}]}):
        schema = {"properties": {"a": {**rest, "default": None}, "b": True}}
        assert lossless.omit_nulls_that_mean_nothing(schema) == {"properties": {"a": rest, "b": True}}


def test_a_single_branch_is_the_schema() -> None:
    for key in ("anyOf", "oneOf", "allOf"):
        assert lossless.merge_single_branches({key: [TEXT], "title": "T"}) == {**TEXT, "title": "T"}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"additionalProperties": False}], "properties": {"a": TEXT}},
        {"allOf": [{"items": {"type": "integer"}}], "prefixItems": [TEXT]},
        {"allOf": [{"maxContains": 1}], "contains": TEXT},
        {"allOf": [{"then": False}], "if": {"type": "string"}},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": TEXT}},
        {"allOf": [{"$id": "urn:a", "type": "string"}]},
        {"allOf": [{"minLength": 2}], "minLength": 1},
        {"anyOf": [{"const": True}], "const": 1},
        {"allOf": [{"description": "Of the branch", "type": "string"}], "description": "Of the node"},
        {"anyOf": [True]},
        {"anyOf": [TEXT, {"type": "integer"}], "title": "T", "type": "string"},
    ],
)
def test_a_branch_that_would_mean_something_else_outside_stays(schema: dict[str, Any]) -> None:
    assert lossless.merge_single_branches(schema) == schema


def test_branches_of_different_types_become_a_list_of_types() -> None:
    branches = [{"type": "string", "minLength": 1}, {"type": "array", "items": TEXT}, {"type": "null"}]
    merged = {"type": ["string", "array", "null"], "minLength": 1, "items": TEXT}
    assert lossless.merge_type_branches({"anyOf": branches}) == merged
    assert lossless.merge_type_branches({"oneOf": branches}) == merged


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "number"}]},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"oneOf": [{"type": "string"}, {"type": "string"}]},
        {"anyOf": [{"type": "string", "description": "One"}, {"type": "null"}]},
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        {"anyOf": [{"type": ["string"]}, {"type": "null"}]},
        {"anyOf": [True, {"type": "null"}]},
        {"anyOf": [TEXT]},
        {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "minLength": 2},
        {"anyOf": [{"type": "object", "additionalProperties": False}, TEXT], "properties": {"a": TEXT}},
        {"anyOf": [TEXT, {"type": "null"}], "type": "string"},
    ],
)
def test_branches_that_would_bind_each_other_stay(schema: dict[str, Any]) -> None:
    assert lossless.merge_type_branches(schema) == schema


def test_an_enum_shows_its_type() -> None:
    assert lossless.drop_type_beside_enum({"type": "string", "enum": ["a"]}) == {"enum": ["a"]}
    assert lossless.drop_type_beside_enum({"type": "boolean", "const": True}) == {"const": True}
    assert lossless.drop_type_beside_enum({"type": "number", "enum": [1, 2.5]}) == {"enum": [1, 2.5]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a", None]},
        {"type": "integer", "enum": [True]},
        {"type": "integer", "enum": [1.0]},
        {"type": "string", "enum": []},
        {"type": ["string", "null"], "enum": ["a"]},
        {"type": "str", "enum": ["a"]},
        {"type": "string", "enum": "a"},
    ],
)
def test_a_type_that_says_more_than_the_enum_stays(schema: dict[str, Any]) -> None:
    assert lossless.drop_type_beside_enum(schema) == schema


def test_the_values_of_an_enum_are_never_rewritten() -> None:
    value = {"type": "object", "title": "Title", "required": [], "anyOf": [TEXT], "$comment": "c"}
    schema = {"enum": [value], "default": value, "const": value}
    for technique in SHRINKING:
        assert technique.apply({"properties": {"a": schema}})["properties"]["a"] == schema


def test_tidying_takes_blanks_only() -> None:
    text = "  First line.  \r\n\r\n\r\n\r\n      indented\n        more\twith a tab\n    "
    assert lossless.tidy(text) == "First line.\n\nindented\n  more\twith a tab"
    assert lossless.tidy_descriptions({"description": text, "items": {"description": 5}}) == {
        "description": lossless.tidy(text),
        "items": {"description": 5},
    }


@given(st.text(alphabet=" \t\r\nab.", max_size=60))
def test_tidying_never_makes_a_text_longer_nor_loses_a_letter(text: str) -> None:
    tidied = lossless.tidy(text)
    assert len(tidied) <= len(text)
    assert "".join(tidied.split()) == "".join(text.split())


def test_two_descriptions_of_one_thing_are_joined_without_repeating() -> None:
    assert lossless.joined("The card's id.", "The  card's id.") == "The card's id."
    assert lossless.joined("An id.", "An id. Never zero.") == "An id. Never zero."
    assert lossless.joined("An id.", "Never zero.") == "An id. Never zero."


@given(valid_schemas() | any_schema)
def test_a_technique_without_its_signs_has_nothing_to_do(schema: dict[str, Any]) -> None:
    for technique in SHRINKING:
        if not technique.concerns(compact(schema)):
            assert technique.apply(schema) is schema, technique.name


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\x1f", "\x85", "\xa0", "\u3000"])
def test_a_blank_of_any_kind_is_a_sign_of_something_to_tidy(blank: str) -> None:
    (tidying,) = (technique for technique in SHRINKING if technique.name == "tidy descriptions")
    for text in (f"a{blank}", f"{blank}a"):
        assert tidying.concerns(compact({"description": text}))
        assert tidying.apply({"description": text}) == {"description": "a"}


@settings(max_examples=at_most(15), deadline=None)
@given(any_json)
def test_techniques_see_the_same_in_a_deep_schema(junk: Any) -> None:
    deep = nested(70, {"properties": {"a": junk}})
    for technique in SHRINKING:
        assert isinstance(technique.apply(deep), dict)
