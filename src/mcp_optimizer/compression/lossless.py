"""Makes JSON Schema smaller without changing what it accepts: one pure function per technique.

The output is plain JSON Schema. A technique rewrites one schema object (`walk.rewrite` applies it to all of them) and
never widens: whatever the result accepts, the original accepts too. The one narrowing is a null that means the same as
omitting the parameter; callers accept the original shape as well, so nothing is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from textwrap import dedent
from typing import Any

from mcp_optimizer.compression.walk import Schema, carried, children, keywords, schemas
from mcp_optimizer.domain.json_schema import named, names, properties_of, required_of
from mcp_optimizer.search.words import are_all_in, words

# Keywords that apply to only one type of value.
_OF_TYPE = {
    "string": {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems"},
    "object": {"properties", "required", "additionalProperties", "patternProperties", "minProperties"}
    | {"maxProperties", "propertyNames"},
    "boolean": set(),
    "null": set(),
}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}

# Keywords that the vocabularies define; others are generators' private notes. `nullable`, `example` and `examples` are
# not JSON Schema or mean nothing to a validator, but a model reads them.
KNOWN = frozenset(
    "$ref $defs $anchor $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor $id definitions type enum const "
    "multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems "
    "uniqueItems contains maxContains minContains maxProperties minProperties required dependentRequired allOf anyOf "
    "oneOf not if then else dependentSchemas dependencies prefixItems items additionalItems properties "
    "patternProperties additionalProperties propertyNames unevaluatedItems unevaluatedProperties title description "
    "default examples example deprecated format contentEncoding contentMediaType contentSchema nullable readOnly "
    "writeOnly enumDescriptions enumNames markdownDescription".split()
)

DOCUMENTING = frozenset({"description", "title", "default", "examples", "deprecated"})
"""Keywords that explain a value and do not validate it."""

# Keywords that the drafts of JSON Schema read differently. A schema without `$schema` is read as 2020-12.
_CHANGED_SINCE_DRAFT_7 = frozenset(
    "additionalItems dependencies dependentRequired dependentSchemas prefixItems unevaluatedItems "
    "unevaluatedProperties minContains maxContains contentSchema $anchor $dynamicRef $dynamicAnchor $recursiveRef "
    "$recursiveAnchor".split()
)
_CHANGED_SINCE_DRAFT_4 = frozenset("id const contains propertyNames if exclusiveMinimum exclusiveMaximum".split())

# Keywords that depend on each other and must not be merged from two schemas.
_READ_EACH_OTHER = (
    frozenset({"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"}),
    frozenset({"items", "prefixItems", "additionalItems", "unevaluatedItems"}),
    frozenset({"contains", "minContains", "maxContains", "unevaluatedItems"}),
    frozenset({"if", "then", "else"}),
    frozenset({"minimum", "exclusiveMinimum"}),
    frozenset({"maximum", "exclusiveMaximum"}),
)
_BOUND_TO_THEIR_PLACE = frozenset(
    "$ref $dynamicRef $recursiveRef $id id $anchor $dynamicAnchor $recursiveAnchor $defs definitions "
    "unevaluatedProperties unevaluatedItems".split()
)

# Inside one of these, a schema that accepts less may make the outer schema accept more.
_TURNING = frozenset({"not", "if", "oneOf", "contains"})

_SAYING_NOTHING = frozenset("a an the of for to in on by this".split())

_COUNTED = frozenset({"additionalProperties", "unevaluatedProperties", "additionalItems", "items"})
"""Redundant keywords that still matter to an `unevaluated…` one, because what they accept counts as evaluated."""

IDLE: dict[str, Any] = {
    "required": [],
    "minLength": 0,
    "minItems": 0,
    "minProperties": 0,
    "uniqueItems": False,
    "additionalItems": True,
    "additionalProperties": True,
    "unevaluatedProperties": True,
    "deprecated": False,
    "readOnly": False,
    "writeOnly": False,
    "nullable": False,
    "examples": [],
    "description": "",
    "title": "",
    "items": {},
    "propertyNames": {"type": "string"},
}
"""Keywords with their default value."""

ADMITTING_ALL: Schema = {}
"""The schema that accepts everything; also the default of `additionalProperties`."""


def _without(node: Schema, *keys: str) -> Schema:
    return {key: value for key, value in node.items() if key not in keys}


def drop_unknown_keywords(schema: Schema) -> Schema:
    """Drops `$comment`, `x-…`, and `$schema` if all drafts read this schema alike."""
    known = KNOWN | {"$schema"} if _needs_its_draft(schema) else KNOWN
    if keywords(schema) <= known:
        return schema

    def change(node: Schema) -> Schema:
        return node if node.keys() <= known else {key: value for key, value in node.items() if key in known}

    return carried(schema, change)


def _needs_its_draft(schema: Schema) -> bool:
    draft = schema.get("$schema")
    if not isinstance(draft, str) or "2020-12" in draft:
        return False
    changed = _CHANGED_SINCE_DRAFT_7
    if "draft-07" not in draft and "2019-09" not in draft:
        changed |= _CHANGED_SINCE_DRAFT_4
    return any(
        changed & node.keys()
        or isinstance(node.get("items"), list)
        or ("$ref" in node and not (node.keys() & KNOWN) <= DOCUMENTING | {"$ref"})
        for node in schemas(schema)
    )


def drop_idle_keywords(schema: Schema) -> Schema:
    """Drops `required: []`, `additionalProperties: true` and similar: keywords that state a default."""
    counted = _COUNTED if keywords(schema) & {"unevaluatedProperties", "unevaluatedItems"} else frozenset[str]()

    def is_idle(key: str, value: Any) -> bool:
        if key in counted:
            return False
        return _same(value, IDLE[key]) or (key == "additionalProperties" and _same(value, ADMITTING_ALL))

    def change(node: Schema) -> Schema:
        idle = [key for key in node.keys() & IDLE.keys() if is_idle(key, node[key])]
        return _without(node, *idle) if idle else node

    return carried(schema, change)


def drop_restating_titles(schema: Schema) -> Schema:
    """Drops a title that only repeats its property's name, or is contained in the description."""
    changed = _with_properties(schema, _without_title)
    return _without(changed, "title") if "title" in changed else changed


def _with_properties(schema: Schema, change: Callable[[Schema, str], Schema]) -> Schema:
    """Changes every property, given its schema and its name."""

    def change_all(node: Schema) -> Schema:
        properties = properties_of(node)
        changed = {
            name: new
            for name, child in properties.items()
            if isinstance(child, dict) and (new := change(child, name)) is not child
        }
        return {**node, "properties": {**properties, **changed}} if changed else node

    return carried(schema, change_all)


def _without_title(schema: Schema, name: str) -> Schema:
    if not isinstance(title := schema.get("title"), str):
        return schema
    said = set(words(name)) | set(words(str(schema.get("description", ""))))
    return _without(schema, "title") if set(words(title)) <= said else schema


def drop_restating_descriptions(schema: Schema) -> Schema:
    """Drops a description that only repeats its property's name: `job_id`, "The ID of the job"."""

    def change(node: Schema, name: str) -> Schema:
        text = node.get("description")
        return _without(node, "description") if isinstance(text, str) and repeats(text, name) else node

    return _with_properties(schema, change)


@lru_cache(maxsize=4_096)
def repeats(text: str, name: str) -> bool:
    """Whether every word of a text is in the name. Cached, because tools of one server share many parameters."""
    return are_all_in(text, _SAYING_NOTHING.union(words(name)))


def omit_nulls_that_mean_nothing(schema: Schema) -> Schema:
    """Drops null from an optional parameter whose default is null, because omitting it means the same."""
    turned = (inner for node in schemas(schema) for child in children(node, _TURNING) for inner in schemas(child))
    if any("$ref" in node or "$dynamicRef" in node or "$recursiveRef" in node for node in turned):
        return schema
    elsewhere = _required_elsewhere(schema)

    def change(node: Schema) -> Schema:
        # A null counts towards `minProperties`.
        if "minProperties" in node:
            return node
        properties, required = properties_of(node), elsewhere.union(required_of(node))
        changed = {
            name: new
            for name, child in properties.items()
            if name not in required and (new := _without_default_null(child)) is not child
        }
        return {**node, "properties": {**properties, **changed}} if changed else node

    return carried(schema, change, outside=_TURNING)


def _required_elsewhere(schema: Schema) -> frozenset[str]:
    """Parameters that may be required by another schema than the one that describes them."""
    nodes = list(schemas(schema))
    joined = any(
        node.keys() & {"allOf", "then", "else", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"}
        or ("properties" in node and node.keys() & {"anyOf", "oneOf", "$ref"})
        for node in nodes
    )
    found: set[str] = set()
    for node in nodes:
        declared = properties_of(node)
        found.update(name for name in required_of(node) if joined or name not in declared)
        for key in ("dependentRequired", "dependencies"):
            found.update(name for dependent in named(node, key).values() for name in names(dependent))
    return frozenset(found)


def _without_default_null(schema: Any) -> Any:
    if not isinstance(schema, dict) or "default" not in schema or schema["default"] is not None:
        return schema
    rest = _without(schema, "default")
    for key in ("anyOf", "oneOf"):
        branches = rest.get(key)
        if isinstance(branches, list) and {"type": "null"} in branches:
            remaining = [branch for branch in branches if branch != {"type": "null"}]
            # In `oneOf`, two branches may both accept null, and then `oneOf` rejects it.
            exact = key == "anyOf" or all(_is_never_null(branch) for branch in remaining)
            return {**rest, key: remaining} if remaining and exact else rest
    kinds = rest.get("type")
    if isinstance(kinds, list) and "null" in kinds and "enum" not in rest:
        remaining = [kind for kind in kinds if kind != "null"]
        return {**rest, "type": remaining[0] if len(remaining) == 1 else remaining} if remaining else rest
    return rest


def _is_never_null(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind != "null"


def merge_single_branches(schema: Schema) -> Schema:
    """Replaces `anyOf`, `oneOf` or `allOf` of one branch by the branch, if it does not contradict the node."""

    def change(node: Schema) -> Schema:
        for key in ("anyOf", "oneOf", "allOf"):
            branches = node.get(key)
            if not isinstance(branches, list) or len(branches) != 1 or not isinstance(branches[0], dict):
                continue
            branch = branches[0]
            rest = _without(node, key)
            clash = {name for name in branch.keys() & rest.keys() if not _same(branch[name], rest[name])}
            # The node's own title and default describe this use of the branch, so they win.
            if clash <= {"title", "default"} and _may_come_together(branch, rest):
                node = {**branch, **rest}
        return node

    return carried(schema, change)


def _may_come_together(branch: Schema, rest: Schema) -> bool:
    """Whether the keywords of two schemas mean the same when merged into one."""
    if _BOUND_TO_THEIR_PLACE & branch.keys():
        return False
    return not any(group & branch.keys() and group & rest.keys() for group in _READ_EACH_OTHER)


def merge_type_branches(schema: Schema) -> Schema:
    """`anyOf` of different types becomes a list of types, with each type's own keywords."""

    def change(node: Schema) -> Schema:
        for key in ("anyOf", "oneOf"):
            if isinstance(branches := node.get(key), list) and "type" not in node:
                merged = _merged(branches)
                rest = _without(node, key)
                if merged is not None and not (merged.keys() & rest.keys()) and _may_come_together(merged, rest):
                    node = {**merged, **rest}
        return node

    return carried(schema, change)


def _merged(branches: list[Any]) -> Schema | None:
    kinds: list[str] = []
    merged: Schema = {}
    for branch in branches:
        if not isinstance(branch, dict) or not isinstance(kind := branch.get("type"), str):
            return None
        own = _without(branch, "type")
        if not own.keys() <= _OF_TYPE.get(kind, set()) or own.keys() & merged.keys():
            return None
        kinds.append(kind)
        merged |= own
    # An integer is also a number: such branches overlap, and the bounds of one would apply to the other.
    if len(set(kinds)) != len(kinds) or {"integer", "number"} <= set(kinds) or len(kinds) < 2:
        return None
    return {"type": kinds, **merged}


def drop_type_beside_enum(schema: Schema) -> Schema:
    """Drops the type next to an enum, because the values show it."""

    def change(node: Schema) -> Schema:
        values = node.get("enum")
        kind = node.get("type")
        if "const" in node and "enum" not in node:
            values = [node["const"]]
        if not isinstance(values, list) or not values or not isinstance(kind, str) or kind not in _PYTHON_TYPES:
            return node
        return _without(node, "type") if all(_is_of(value, kind) for value in values) else node

    return carried(schema, change)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON_TYPES[kind])


def tidy_descriptions(schema: Schema) -> Schema:
    """Removes indentation, trailing blanks and repeated empty lines."""

    def change(node: Schema) -> Schema:
        text = node.get("description")
        tidied = tidy(text) if isinstance(text, str) else text
        return node if tidied == text else {**node, "description": tidied}

    return carried(schema, change)


def tidy(text: str) -> str:
    """The text without indentation, trailing blanks and repeated empty lines; a tab inside a line stays."""
    if "\n" not in text:
        return text.strip()
    first, newline, others = text.replace("\r\n", "\n").partition("\n")
    lines = [line.rstrip() for line in f"{first.lstrip()}{newline}{dedent(others)}".split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def joined(own: str, other: str) -> str:
    """Two descriptions of one thing: the longer if it contains the shorter, otherwise both in sequence."""
    said, also = " ".join(own.split()), " ".join(other.split())
    if also in said:
        return own
    return other if said in also else f"{own} {other}"


def _same(value: Any, other: Any) -> bool:
    """JSON equality: False is not 0."""
    return bool(value == other) and json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)
