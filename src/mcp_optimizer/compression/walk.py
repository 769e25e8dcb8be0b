"""Where the schemas stand inside a JSON Schema, and a way to rewrite each of them. Pure.

Everything in this room goes through here, so that a property named `title` is never taken for the keyword,
and an enum's values never for schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]

_ONE = frozenset(
    "items additionalItems contains additionalProperties propertyNames not if then else "
    "unevaluatedItems unevaluatedProperties contentSchema".split()
)
_LIST = frozenset("allOf anyOf oneOf prefixItems items".split())
_NAMED = frozenset("properties patternProperties $defs definitions dependentSchemas dependencies".split())

DEEPEST = 64
"""Deeper than any schema a person wrote; a hostile one is left alone from here on."""


def rewrite(
    schema: Any, change: Callable[[Schema], Schema], outside: frozenset[str] = frozenset(), depth: int = 0
) -> Any:
    """Apply `change` to every schema, innermost first, but none inside the keywords of `outside`.

    What is not a schema object passes unchanged.
    """
    if not isinstance(schema, dict) or depth > DEEPEST:
        return schema

    def below(child: Any) -> Any:
        return rewrite(child, change, outside, depth + 1)

    return change({key: value if key in outside else map_children(key, value, below) for key, value in schema.items()})


def carried(schema: Schema, change: Callable[[Schema], Schema], outside: frozenset[str] = frozenset()) -> Schema:
    """`rewrite`, for a schema that is known to be an object."""
    changed: Schema = rewrite(schema, change, outside)
    return changed


def map_children(key: str, value: Any, below: Callable[[Any], Any]) -> Any:
    """A keyword's value with `below` applied to the schemas that stand directly in it."""
    if key in _NAMED and isinstance(value, dict):
        return {name: below(child) for name, child in value.items()}
    if key in _LIST and isinstance(value, list):
        return [below(child) for child in value]
    return below(value) if key in _ONE else value


def children(schema: Schema, keywords: frozenset[str] | None = None) -> Iterator[Any]:
    """What stands as a schema directly inside one, under some keywords or under all."""
    for key, value in schema.items():
        if keywords is not None and key not in keywords:
            continue
        if key in _NAMED and isinstance(value, dict):
            yield from value.values()
        elif key in _LIST and isinstance(value, list):
            yield from value
        elif key in _ONE:
            yield value


def schemas(schema: Any, depth: int = 0) -> Iterator[Schema]:
    """Every schema object, outermost first."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return
    yield schema
    for child in children(schema):
        yield from schemas(child, depth + 1)


def is_seen_whole(schema: Any, depth: int = 0) -> bool:
    """Whether `rewrite` and `schemas` reach everything: nothing lies too deep."""
    if not isinstance(schema, dict):
        return True
    return depth <= DEEPEST and all(is_seen_whole(child, depth + 1) for child in children(schema))
