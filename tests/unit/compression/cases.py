"""Shared by the tests of compression: generated schemas and values, and a check whether a schema accepts a value."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from mcp_optimizer.domain.tools import McpTool

_KEYWORDS = (
    "type properties required items enum const anyOf oneOf allOf not if then else $ref $defs definitions title "
    "description default additionalProperties patternProperties prefixItems format minimum maximum $id $anchor "
    "dependentSchemas dependencies dependentRequired unevaluatedProperties examples $schema x-note minProperties "
    "exclusiveMinimum contains propertyNames add_to_add add_to_remove"
).split()
_VALUES = ["object", "array", "string", "null", "#", "#/$defs/a", "#/properties/a", "a", "title", "", "#/$defs/%"]

_scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(_VALUES)
_keys = st.sampled_from([*_KEYWORDS, "a", "b"])
any_json = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=25
)
any_schema = st.dictionaries(_keys, any_json, max_size=6)
"""Junk that looks like a schema: keywords in the right and in the wrong places, with values of any shape."""


_types = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
_leaves: st.SearchStrategy[Any] = (
    _types.map(lambda kind: {"type": kind})
    | st.lists(_types, min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds})
    | st.lists(st.sampled_from([1, "a", None, True, 2.5, 1.0]), min_size=1, max_size=3).map(lambda some: {"enum": some})
    | st.sampled_from([{"const": "a"}, {"const": 1, "type": "integer"}, {"minimum": 2}, {"maxLength": 1}, {}])
    | st.sampled_from([{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "string"}}])
    | st.sampled_from([{"type": "object", "additionalProperties": False}, {"required": ["a"]}, {"minProperties": 1}])
)


@st.composite
def valid_schemas(draw: st.DrawFn, depth: int = 3, references: tuple[str, ...] = ()) -> dict[str, Any]:
    """Schemas that validators accept, with every keyword that the techniques examine. Some of them are references."""
    referring: bool = draw(st.booleans())
    if references and referring:
        return {"$ref": draw(st.sampled_from(references))}
    shallow: bool = draw(st.booleans())
    if depth == 0 or shallow:
        leaf: dict[str, Any] = draw(_leaves)
        return leaf
    inner = valid_schemas(depth - 1, references)
    branches = st.lists(inner, min_size=1, max_size=3)
    parts: dict[str, st.SearchStrategy[Any]] = {
        "anyOf": branches,
        "oneOf": branches,
        "allOf": branches,
        "not": inner,
        "properties": st.dictionaries(st.sampled_from(["a", "b", "title"]), inner, max_size=2),
        "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        "default": st.just(None),
        "type": _types,
        "minItems": st.integers(0, 1),
        "unevaluatedProperties": st.booleans(),
    }
    keys = draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=4, unique=True))
    return {key: draw(parts[key]) for key in keys}


values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, 3, "", "a", "ab"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "title", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def admits(schema: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


def tool_with(schema: dict[str, Any], description: str | None = "Does it.", **fields: Any) -> McpTool:
    return McpTool.model_validate({"name": "do_it", "description": description, "inputSchema": schema, **fields})


def nested(levels: int, leaf: dict[str, Any] | None = None) -> dict[str, Any]:
    """Objects nested to this many levels."""
    schema: dict[str, Any] = leaf or {"type": "string", "title": "Leaf"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}, "required": ["in"]}
    return schema
