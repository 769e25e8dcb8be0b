"""Reads JSON Schemas from any source: a malformed part is treated as absent.

Pure, and below every room that reads schemas. Knows single keywords only; `compression/walk.py` finds the schemas
inside a schema, and `compression/references.py` resolves references.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

ANY_OBJECT: dict[str, Any] = {"type": "object"}
"""The minimal input schema of a tool; listed for a tool whose signature describes the arguments."""


def properties_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of an object's members, by name."""
    return named(schema, "properties")


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """The names of the members that an object must have, in their order."""
    return names(schema.get("required"))


def optional_in(schema: Mapping[str, Any], given: Iterable[str], most: int = 100) -> list[str]:
    """Those of the given names, and at most so many, that an object may have and need not have."""
    members, required = properties_of(schema), frozenset(required_of(schema))
    return list(islice((name for name in given if name in members and name not in required), most))


def reference_of(schema: Mapping[str, Any]) -> str | None:
    """The reference of a schema, or None."""
    found = schema.get("$ref")
    return found if isinstance(found, str) else None


def named(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """The object under a keyword, such as `properties`, `patternProperties` or `$defs`."""
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """The list under a keyword, such as `allOf`, `anyOf` or `enum`."""
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def names(value: object) -> list[str]:
    """The texts in a list of names; other items are ignored."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
