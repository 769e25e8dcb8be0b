"""The shape that a tool's output schema declares. Pure, and quick for any schema: what is too much is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from mcp_optimizer.compression.references import resolve
from mcp_optimizer.compression.shapes import DEEPEST, NOTHING, Member, Shape, is_plain, merged, without_envelope
from mcp_optimizer.domain.json_schema import listed, named, names, properties_of, reference_of, required_of

_SCALARS = {"string": "str", "number": "num", "integer": "num", "boolean": "bool", "null": "null"}
_OF_VALUES: dict[type, str] = {
    **{str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"},
    **{dict: "object", list: "array"},
}
_MOST_NODES = 2_000
_MOST_MEMBERS = 60
_MOST_BRANCHES = 20


def shape_of_schema(output_schema: Mapping[str, Any] | None) -> Shape | None:
    """What results that fit a schema look like; None if there is no schema or it says nothing."""
    found = without_envelope(_shape(output_schema))
    return None if found == NOTHING else found


def is_envelope(output_schema: Mapping[str, Any] | None) -> bool:
    """Whether a schema declares nothing but an envelope, whose inside `shape_of_schema` describes."""
    found = _shape(output_schema)
    return without_envelope(found) is not found


def _shape(output_schema: Mapping[str, Any] | None) -> Shape:
    root = dict(output_schema or {})
    try:
        return _Reader(root).shape(root, 0, ()) if root else NOTHING
    except RecursionError:
        return NOTHING


class _Reader:
    """Reads one schema. Every object counts once; a member is in all of them or, if it is optional, in none."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MOST_NODES

    def shape(self, schema: Any, depth: int, inside: tuple[str, ...]) -> Shape:
        """`inside`: the references that were followed on the way here since the last member."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > DEEPEST:
            return NOTHING
        found = self._own(schema, depth)
        reference = reference_of(schema)
        if reference is not None and reference not in inside and len(inside) < _MOST_BRANCHES:
            target = resolve(self._root, reference)
            found = _both(found, self.shape(target, depth, (*inside, reference)))
        for part in listed(schema, "allOf")[:_MOST_BRANCHES]:
            found = _both(found, self.shape(part, depth, inside))
        for keyword in ("anyOf", "oneOf"):
            branches = listed(schema, keyword)[:_MOST_BRANCHES]
            found = _both(found, _any_of(self.shape(branch, depth, inside) for branch in branches))
        return found

    def _own(self, schema: dict[str, Any], depth: int) -> Shape:
        """What the schema itself says, without what it refers to."""
        kinds = _kinds(schema)
        found = Shape(frozenset(_SCALARS[kind] for kind in kinds if kind in _SCALARS))
        if "object" in kinds or properties_of(schema):
            found = merged(found, self._object(schema, depth))
        if "array" in kinds or "items" in schema:
            found = merged(found, Shape(items=self._items(schema, depth)))
        return found

    def _object(self, schema: dict[str, Any], depth: int) -> Shape:
        properties, required = properties_of(schema), frozenset(required_of(schema))
        # The required ones first, in case there are more than are read.
        ordered = sorted(properties, key=lambda name: name not in required)
        members = {
            name: Member(self.shape(properties[name], depth + 1, ()), int(name in required))
            for name in islice(filter(is_plain, ordered), _MOST_MEMBERS)
        }
        others = [schema.get("additionalProperties"), *named(schema, "patternProperties").values()]
        values = [other for other in others[:_MOST_BRANCHES] if isinstance(other, dict)]
        if values and not properties:
            return Shape(objects=1, values=_any_of(self.shape(value, depth + 1, ()) for value in values))
        is_open = bool(values) or (not properties and others[0] is not False)
        return Shape(objects=1, members=members, has_more=is_open or len(members) < len(properties))

    def _items(self, schema: dict[str, Any], depth: int) -> Shape:
        items = schema.get("items")
        parts = [*listed(schema, "prefixItems"), *(items if isinstance(items, list) else [items])]
        return _any_of(self.shape(part, depth + 1, ()) for part in parts[:_MOST_BRANCHES])


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if found := names(kind):
        return found
    values = [schema["const"]] if "const" in schema else listed(schema, "enum")[:_MOST_BRANCHES]
    return [_OF_VALUES[type(value)] for value in values if type(value) in _OF_VALUES]


def _any_of(shapes: Iterable[Shape]) -> Shape:
    """One of several: what only some of the objects must have is optional."""
    found = NOTHING
    for shape in shapes:
        found = merged(found, shape)
    members = {name: Member(shape, int(seen == found.objects)) for name, (shape, seen) in found.members.items()}
    return replace(found, objects=min(found.objects, 1), members=members)


def _both(one: Shape, other: Shape) -> Shape:
    """What fits two schemas: what either of them requires is there."""
    found = merged(one, other)
    if NOTHING in (one, other):
        return found
    members = {name: Member(shape, min(seen, 1)) for name, (shape, seen) in found.members.items()}
    # If one of them says only that it is an object, the other says which.
    has_more = any(part.has_more for part in (one, other) if part.members or not members)
    return replace(found, objects=min(found.objects, 1), members=members, has_more=has_more)
