"""Finds the schemas inside a JSON Schema and rewrites each of them. Pure.

Everything in this room uses it, so a property named `title` is never mistaken for the keyword, nor an enum's values for
schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_not
from typing import Any

Schema = dict[str, Any]

_ONE = frozenset(
    "items additionalItems contains additionalProperties propertyNames not if then else "
    "unevaluatedItems unevaluatedProperties contentSchema".split()
)
_LIST = frozenset("allOf anyOf oneOf prefixItems items".split())
_NAMED = frozenset("properties patternProperties $defs definitions dependentSchemas dependencies".split())
_HOLDING = _ONE | _LIST | _NAMED

DEEPEST = 64
"""Deeper than any schema written by a person; parts below this level are left unchanged."""


def rewrite(
    schema: Any, change: Callable[[Schema], Schema], outside: frozenset[str] = frozenset(), depth: int = 0
) -> Any:
    """Applies `change` to every schema, innermost first, except inside the keywords of `outside`.

    Values that are no schema objects pass unchanged. If `change` changes nothing, the same objects are returned, so a
    caller can detect that at no cost.
    """
    if not isinstance(schema, dict) or depth > DEEPEST:
        return schema

    def below(child: Any) -> Any:
        if isinstance(child, dict) and _HOLDING.isdisjoint(child) and depth < DEEPEST:
            # Most schemas contain no other.
            return change(child)
        return rewrite(child, change, outside, depth + 1)

    return change(with_children(schema, below, outside))


def carried(schema: Schema, change: Callable[[Schema], Schema], outside: frozenset[str] = frozenset()) -> Schema:
    """`rewrite` for a schema that is known to be an object."""
    changed: Schema = rewrite(schema, change, outside)
    return changed


def with_children(schema: Schema, below: Callable[[Any], Any], outside: frozenset[str] = frozenset()) -> Schema:
    """A schema with `below` applied to its direct subschemas."""
    changed = schema
    for key, value in schema.items():
        if key not in _HOLDING or key in outside:
            continue
        mapped: Any = value
        if isinstance(value, dict):
            if key in _NAMED:
                mapped = _with_values(value, below)
            elif key in _ONE:
                mapped = below(value)
        elif key in _LIST and isinstance(value, list):
            mapped = _with_items(value, below)
        if mapped is not value:
            changed = dict(schema) if changed is schema else changed
            changed[key] = mapped
    return changed


def _with_values(named: dict[str, Any], below: Callable[[Any], Any]) -> dict[str, Any]:
    changed = named
    for name, child in named.items():
        if (new := below(child)) is not child:
            changed = dict(named) if changed is named else changed
            changed[name] = new
    return changed


def _with_items(listed: list[Any], below: Callable[[Any], Any]) -> list[Any]:
    changed = [below(child) for child in listed]
    return changed if any(map(is_not, changed, listed)) else listed


def children(schema: Schema, keywords: frozenset[str] = _HOLDING) -> list[Any]:
    """The direct subschemas of a schema, under some keywords or under all."""
    found: list[Any] = []
    for key, value in schema.items():
        if key not in keywords:
            continue
        if key in _NAMED and isinstance(value, dict):
            found += value.values()
        elif key in _LIST and isinstance(value, list):
            found += value
        elif key in _ONE:
            found.append(value)
    return found


def schemas(schema: Any) -> Iterator[Schema]:
    """Every schema object, outermost first."""
    if not isinstance(schema, dict):
        return
    yield schema
    # For each schema on the path to this one, the iterator over its children.
    above = [iter(children(schema))]
    while above:
        for node in above[-1]:
            if isinstance(node, dict):
                yield node
                if len(above) < DEEPEST and not _HOLDING.isdisjoint(node):
                    above.append(iter(children(node)))
                    break
        else:
            above.pop()


def keywords(schema: Schema) -> frozenset[str]:
    """All keywords anywhere in a schema."""
    return frozenset().union(*schemas(schema))


def is_seen_whole(schema: Any) -> bool:
    """Whether `rewrite` and `schemas` reach every part, because none is too deep."""
    level = [schema]
    for _ in range(DEEPEST + 1):
        holding = [node for node in level if isinstance(node, dict) and not _HOLDING.isdisjoint(node)]
        level = [child for node in holding for child in children(node)]
        if not level:
            return True
    return not any(isinstance(node, dict) for node in level)
