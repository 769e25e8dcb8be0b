"""What a call says of limits: those among its arguments, in the tool's own shape, and the defaults in its schema.

Pure. Models write arguments and servers write schemas, so any value may stand anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mcp_optimizer.domain.json_schema import named, properties_of, reference_of
from mcp_optimizer.results.limit_names import CURSORS, LIMITS, NUMBERED, OFFSETS, WRAPPERS

_LONGEST_NUMBER = 9
_NO_OBJECT: Mapping[str, Any] = {}
_NUMBERS = frozenset({"integer", "number", "string"})


class AskedLimits(NamedTuple):
    """What a call says of limits: each parameter and its value, if known, and how many rows come before."""

    limits: tuple[tuple[str, int | None], ...] = ()
    before: int | None = 0
    is_paged: bool = False
    """Whether the tool returns parts of its rows."""

    @property
    def is_limited(self) -> bool:
        return bool(self.limits) or self.is_paged


def asked_of(arguments: Any, schema: Any) -> AskedLimits:
    """What a call says of limits, by its arguments in the tool's own shape and by the defaults in its schema."""
    limits: list[tuple[str, int | None]] = []
    before: int | None = 0
    page: int | None = None
    is_paged = False
    for given, declared in _levels(arguments, schema):
        if declared.keys().isdisjoint(_ASKING.keys()) and given.keys().isdisjoint(_ASKING.keys()):
            continue
        for name in sorted({*(given.keys() & _ASKING.keys()), *(declared.keys() & _ASKING.keys())}):
            value, about = given.get(name), declared.get(name)
            about = about if isinstance(about, dict) else _NO_OBJECT
            value = about.get("default") if value is None else value
            if name in LIMITS:
                if _isnumber_of_rows(value, about):
                    limits.append((name, number_of_rows(value)))
                continue
            is_paged = True
            if name in OFFSETS and value is not None:
                before = number_of_rows(value, least=0)
            elif name in NUMBERED and value is not None:
                is_from_0 = 0 in (about.get("minimum"), about.get("default"))
                number = number_of_rows(value, least=0)
                page = None if number is None else number - (not is_from_0)
                before = None if page is None else before
            elif name in CURSORS and name in given:
                before = None
    if page is not None and page > 0 and before == 0:
        size = next((most for _, most in limits if most is not None), None)
        before = None if size is None else page * size
    return AskedLimits(tuple(limits), before, is_paged)


_ASKING: Mapping[str, None] = {**LIMITS, **OFFSETS, **NUMBERED, **CURSORS}


def _levels(arguments: Any, schema: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Arguments with the schemas of their properties: of the call, and of objects in which arguments may stand."""
    given = arguments if isinstance(arguments, dict) else _NO_OBJECT
    root = schema if isinstance(schema, dict) else _NO_OBJECT
    declared = properties_of(root)
    yield given, declared
    if given.keys().isdisjoint(WRAPPERS.keys()) and declared.keys().isdisjoint(WRAPPERS.keys()):
        return
    for name in {*(given.keys() & WRAPPERS.keys()), *(declared.keys() & WRAPPERS.keys())}:
        inner, about = given.get(name), _resolved(declared.get(name), root)
        if isinstance(inner, dict) or properties_of(about):
            yield inner if isinstance(inner, dict) else _NO_OBJECT, properties_of(about)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the definition that it names. Only one step, so that a circle ends."""
    if not isinstance(schema, dict):
        return _NO_OBJECT
    if (place := reference_of(schema)) is None:
        return schema
    _, _, name = place.rpartition("/")
    found = named(root, "$defs").get(name, named(root, "definitions").get(name))
    return found if isinstance(found, dict) else schema


def _isnumber_of_rows(value: Any, declared: Mapping[str, Any]) -> bool:
    """Whether a parameter with the name of a limit can be one: `count` is sometimes a switch."""
    if isinstance(value, bool | list | dict):
        return False
    kind = declared.get("type")
    return kind in _NUMBERS if isinstance(kind, str) else True


def number_of_rows(value: Any, least: int = 1) -> int | None:
    """A number of rows; None if it is none."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None
