"""How a JSON Schema is read that anybody may have written: what is not as it should be is as if it were not there.

Pure, and below every room that reads schemas. Knows single keywords only; where schemas stand inside a schema is
`compression/walk.py`, and what a reference points at `compression/references.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANY_OBJECT: dict[str, Any] = {"type": "object"}
"""The least that a tool's input schema may say; what a tool is listed with whose signature says the rest."""


def properties_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of an object's members, by name."""
    return named(schema, "properties")


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """The names of the members that an object must have, in the order in which they stand there."""
    return names(schema.get("required"))


def reference_of(schema: Mapping[str, Any]) -> str | None:
    """What a schema refers to."""
    found = schema.get("$ref")
    return found if isinstance(found, str) else None


def named(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """What a keyword holds by name: `properties`, `patternProperties`, `$defs`."""
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """What a keyword holds in a row: `allOf`, `anyOf`, `enum`."""
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def names(value: object) -> list[str]:
    """The texts of a list of names; nothing else can be one."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
