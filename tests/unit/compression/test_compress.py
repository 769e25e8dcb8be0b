"""Techniques are combined by what they save; the result is never larger and never wrong."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_optimizer.compression.compress import SHRINKING, CompressedTool, Dialect, compress, without_envelope
from mcp_optimizer.compression.groups import NO_GROUPS, expand
from mcp_optimizer.compression.references import references
from mcp_optimizer.largejson.compact_json import compact
from tests.unit.compression.cases import admits, any_schema, nested, tool_with, valid_schemas, values

TEXT = {"type": "string"}
LONG = {"type": "object", "properties": {f"field_{n}": {"type": "string", "maxLength": 50 + n} for n in range(5)}}


def _compressed(schema: dict[str, Any], dialect: Dialect = Dialect.PLAIN, **fields: Any) -> CompressedTool:
    return compress(tool_with(schema, **fields), len, dialect, explained=True)


def test_what_a_model_does_not_need_goes() -> None:
    tool = tool_with(
        {"type": "object", "properties": {"a": {"type": "string", "title": "A"}}},
        outputSchema={"type": "object"},
        annotations={"readOnlyHint": True},
        title="Do it",
        _meta={"x": 1},
    )
    compressed = compress(tool, len, explained=True)
    assert json.loads(compressed.tool.model_dump_json()) == {
        "name": "do_it",
        "description": "Does it.",
        "inputSchema": {"properties": {"a": TEXT}, "type": "object"},
    }
    assert compressed.baseline_tokens == len(tool.model_dump_json())
    assert compressed.tokens == len(compressed.tool.model_dump_json()) == compressed.steps[-1].tokens
    assert without_envelope(tool).output_schema is None


def test_every_step_makes_it_smaller() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"anyOf": [TEXT, {"type": "null"}], "default": None, "title": "A"}, "b": LONG, "c": LONG},
        "required": [],
    }
    compressed = _compressed(schema, Dialect.REFERENCES, description="  Does it.\n\n\n\n  Well.  ")
    sizes = [compressed.baseline_tokens, *[step.tokens for step in compressed.steps]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert compressed.tool.input_schema["type"] == "object"


def test_a_tool_that_cannot_be_smaller_stays_as_it_is() -> None:
    for schema in ({}, {"type": "object"}, {"properties": {"a": TEXT}}):
        tool = tool_with(schema)
        assert compress(tool, len).tool == tool
        assert compress(tool, len).steps == ()


@pytest.mark.requirement("B5", "TM-2")
def test_a_technique_that_makes_it_larger_is_not_applied() -> None:
    # With this counter a text without titles costs more.
    compressed = compress(tool_with({"type": "object", "title": "T"}), lambda text: 100 - text.count("title"))
    assert compressed.tool.input_schema == {"type": "object", "title": "T"}


def test_notes_are_lifted_where_that_is_smaller() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "Where to look"}, "b": True}}
    compressed = _compressed(schema, description="Does it.\n\nArgs:\n    a: Where to look")
    assert compressed.tool.description == "Does it."
    assert compressed.steps[-1].technique == "lifted notes"
    # A parameter without a schema has no place for a note.
    kept = _compressed(schema, description="Does it.\n\nArgs:\n    b: Where to look")
    assert kept.tool.description == "Does it.\n\nArgs:\n    b: Where to look"
    assert _compressed({"type": "object", "properties": 5}, description=None).tool.description is None


RECURSIVE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/T"}, "other": {"$ref": "#/$defs/O"}},
    "$defs": {"T": {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}, "O": TEXT, "unused": TEXT},
}


@pytest.mark.parametrize("dialect", list(Dialect))
def test_recursive_references_stay_and_others_are_written_out(dialect: Dialect) -> None:
    schema = _compressed(RECURSIVE, dialect).tool.input_schema
    assert schema["properties"]["other"] == TEXT
    assert set(references(schema)) == {"#/$defs/T"}
    assert list(schema["$defs"]) == ["T"]


def test_what_is_used_once_is_written_out_where_the_rest_would_cost_more() -> None:
    properties = {**{f"p{n}": {"$ref": "#/$defs/Long"} for n in range(4)}, "once": {"$ref": "#/$defs/Once"}}
    schema = {"type": "object", "properties": properties, "$defs": {"Long": LONG, "Once": TEXT}}
    plain = _compressed(schema).tool.input_schema
    assert plain["properties"]["once"] == TEXT
    [kept] = plain["$defs"].values()
    assert kept["properties"].keys() == LONG["properties"].keys()  # type: ignore[attr-defined]
    # Expanding all references would make it larger than the original: for who cannot read them, they stay as they were.
    assert len(set(references(_compressed(schema, Dialect.INLINED).tool.input_schema))) == 2
    inlined = _compressed(schema, Dialect.INLINED, outputSchema={"description": "x" * 2000})
    assert list(references(inlined.tool.input_schema)) == []


def test_repeated_parts_are_shared_for_those_who_read_references() -> None:
    schema = {"type": "object", "properties": {"a": LONG, "b": LONG}}
    assert "$defs" not in _compressed(schema).tool.input_schema
    assert list(references(_compressed(schema, Dialect.REFERENCES).tool.input_schema)) == ["#/$defs/d0"] * 2


def test_a_tool_that_has_references_as_its_server_sent_it_may_get_more() -> None:
    properties = {"a": LONG, "b": LONG, "c": {"$ref": "#/$defs/T"}, "d": {"$ref": "#/$defs/T"}}
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}
    schema = {"type": "object", "properties": properties, "$defs": {"T": tree}}
    shared = _compressed(schema).tool.input_schema
    assert Counter(references(shared)) == {"#/$defs/T": 3, "#/$defs/d0": 2}
    assert set(references(_compressed(schema, Dialect.INLINED).tool.input_schema)) == {"#/$defs/T"}


def test_references_to_the_middle_of_a_schema_are_written_out_first() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"title": "A", "anyOf": [{"type": "string", "title": "In it"}, {"type": "null"}], "default": None},
            "b": {"$ref": "#/properties/a/anyOf/0"},
        },
        "required": ["b"],
    }
    compressed = _compressed(schema).tool.input_schema
    assert list(references(compressed)) == []
    assert not admits(compressed, {"b": None})
    assert admits(compressed, {"b": "x"})


@pytest.mark.parametrize(
    "bound",
    [
        {"$anchor": "here", "anyOf": [TEXT, {"type": "null"}], "default": None},
        {"$id": "urn:x", "type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": TEXT}},
        {"items": {"$ref": "#/properties/a"}, "type": ["array", "null"], "default": None},
        {"$ref": "#/properties/a/anyOf/0", "anyOf": [TEXT]},
    ],
)
def test_where_parts_are_bound_to_their_places_only_words_go(bound: dict[str, Any]) -> None:
    schema = {"type": "object", "title": "Arguments", "properties": {"a": bound}, "required": []}
    compressed = _compressed(schema).tool.input_schema
    assert compressed == {key: value for key, value in schema.items() if key != "title"}


def test_written_out_it_may_be_larger_and_then_stays() -> None:
    properties = {"a": {"type": "object", "properties": {"x": LONG}}, "title": TEXT}
    properties |= {f"p{n}": {"$ref": "#/properties/a/properties/x"} for n in range(9)}
    schema = {"type": "object", "title": "Arguments", "properties": properties}
    compressed = _compressed(schema)
    assert len(list(references(compressed.tool.input_schema))) == 9
    assert compressed.tokens < compressed.baseline_tokens


PLACES = {"board_id": TEXT, "column_id": TEXT, "lane_id": TEXT}


def test_groups_that_are_wanted_are_made_even_if_they_cost() -> None:
    tool = tool_with({"type": "object", "properties": PLACES}, outputSchema={"description": "x" * 200})
    compressed = compress(tool, len, groups={"placement": ["board_id", "column_id"]}, explained=True)
    assert compressed.steps[-1].technique == "groups"
    assert compressed.tool.input_schema["properties"]["placement"]["properties"].keys() == {"board_id", "column_id"}
    assert expand({"placement": {"board_id": "b"}}, compressed.groups) == {"board_id": "b"}


def test_groups_never_make_a_tool_larger_than_it_was() -> None:
    tool = tool_with({"type": "object", "properties": PLACES})
    compressed = compress(tool, len, groups={"placement": ["board_id", "column_id"]})
    assert compressed.groups == NO_GROUPS
    assert compressed.tokens <= compressed.baseline_tokens


def test_groups_are_made_where_they_pay_and_nowhere_else() -> None:
    prefix = "configuration" * 3
    paying = {"type": "object", "properties": {f"{prefix}_{n}": TEXT for n in "abcde"}}
    compressed = compress(tool_with(paying), len)
    assert expand({prefix: {"a": "x"}}, compressed.groups) == {f"{prefix}_a": "x"}
    unpaid = {"type": "object", "properties": {f"a_{n}": TEXT for n in "abc"}}
    assert compress(tool_with(unpaid), len).groups == NO_GROUPS


def test_two_hundred_levels_pass() -> None:
    # One level of a schema is two levels of JSON, and more than 255 levels of JSON cannot be sent.
    schema = {**nested(100), "title": "Arguments"}
    compressed = _compressed(schema)
    assert compressed.tokens < compressed.baseline_tokens
    assert admits(compressed.tool.input_schema, {"in": 5}) == admits(schema, {"in": 5})
    deeper = {**nested(200), "title": "Arguments"}
    for technique in SHRINKING:
        assert technique.apply(deeper)["properties"] == deeper["properties"]


@pytest.mark.slow
def test_a_megabyte_of_schema_passes_in_seconds() -> None:
    about = "Words about it, and more of them. " * 20
    properties = {f"field_{n}": {"type": "string", "title": f"Field {n}", "description": about} for n in range(1_500)}
    schema = {"type": "object", "properties": properties}
    assert len(json.dumps(schema)) > 1_000_000
    started = time.perf_counter()
    compressed = _compressed(schema)
    assert compressed.tokens < compressed.baseline_tokens
    assert time.perf_counter() - started < 60


@st.composite
def _tools(draw: st.DrawFn) -> dict[str, Any]:
    references = ("#/$defs/one", "#/$defs/two", "#/properties/a")
    return {
        "type": "object",
        "properties": {
            "a": draw(valid_schemas(2)),
            "b": draw(valid_schemas(2, references)),
            "title": draw(valid_schemas(1, references[:2])),
        },
        "required": draw(st.lists(st.sampled_from(["a", "b"]), max_size=1)),
        "$defs": {"one": draw(valid_schemas(2)), "two": draw(valid_schemas(1, references[:1]))},
    }


@pytest.mark.requirement("TS-2")
@settings(deadline=None)
@given(_tools(), st.sampled_from(list(Dialect)), st.lists(values, min_size=4, max_size=8))
def test_no_dialect_admits_more_than_the_original(schema: dict[str, Any], dialect: Dialect, some: list[Any]) -> None:
    compressed = _compressed(schema, dialect)
    for first, second in itertools.pairwise(some):
        for arguments in ({"a": first, "b": second}, {"b": first, "title": second}, {"a": second}):
            if admits(compressed.tool.input_schema, arguments):
                assert admits(schema, expand(arguments, compressed.groups))


@settings(deadline=None)
@given(any_schema)
def test_any_junk_passes_and_is_never_larger(junk: dict[str, Any]) -> None:
    tool = tool_with(junk)
    for dialect in Dialect:
        compressed = compress(tool, len, dialect, {"g": ["a", "b"]})
        assert compressed.tokens == len(compressed.tool.model_dump_json()) <= compressed.baseline_tokens


def test_json_is_compact() -> None:
    assert compact({"a": [1, "é"]}) == '{"a":[1,"é"]}'
