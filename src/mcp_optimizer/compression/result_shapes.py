"""The shape of a result, from its parsed JSON: its keys where they are names, and never a value. Pure.

Keys may be data too, as in `{"alice": {...}, "bob": {...}}`. An object whose members are all of one kind is taken for
such a map, and only those of its keys are kept that are surely names of fields.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from mcp_optimizer.compression.field_names import is_field_name
from mcp_optimizer.compression.shapes import DEEPEST, MOST_KEYS, NOTHING, Member, Shape, is_plain, merged
from mcp_optimizer.largejson.raw import LargeText

_MOST_NODES = 200
"""Values that are looked at: far below a millisecond."""

_ELEMENTS = 4
"""Elements of a list that are looked at."""

_STR, _NUM, _BOOL, _NULL = (Shape(frozenset({name})) for name in ("str", "num", "bool", "null"))
_SCALARS: dict[type, Shape] = {str: _STR, LargeText: _STR, int: _NUM, float: _NUM, bool: _BOOL, type(None): _NULL}
_OPAQUE = Shape(has_more=True)


def shape_of_value(value: Any) -> Shape:
    """The shape of a parsed result; of a large one, that of its beginning. What is no JSON has none."""
    return _Reader().shape(value, 0)


class _Reader:
    """Reads one result."""

    def __init__(self) -> None:
        self._left = _MOST_NODES

    def shape(self, value: Any, depth: int) -> Shape:
        self._left -= 1
        if (scalar := _SCALARS.get(type(value))) is not None:
            return scalar
        may_enter = depth < DEEPEST and self._left > 0
        if isinstance(value, dict):
            return self._object(value, depth) if may_enter else _OPAQUE
        if isinstance(value, list):
            return Shape(items=self._all(value, depth) if may_enter else NOTHING)
        return NOTHING

    def _all(self, values: Any, depth: int) -> Shape:
        """The shape that a few of many values have together."""
        found = NOTHING
        for value in islice(values, _ELEMENTS):
            if self._left > 0:
                found = merged(found, self.shape(value, depth + 1))
        return found

    def _object(self, value: dict[str, Any], depth: int) -> Shape:
        names = list(filter(_may_be_named(value), value)) if len(value) <= MOST_KEYS else []
        if value and 2 * len(names) < len(value):
            return Shape(objects=1, values=self._all(value.values(), depth))
        members = {name: Member(self.shape(value[name], depth + 1), 1) for name in names if self._left > 0}
        return Shape(objects=1, members=members, has_more=len(members) < len(value))


def _may_be_named(value: dict[str, Any]) -> Any:
    """What decides whether a key of an object may be kept."""
    kinds = Counter(_kind(member) for member in value.values() if member is not None)
    if len(kinds) < 2:
        return _is_surely_name
    # Several objects or lists side by side may be a map among other members.
    return lambda key: _is_surely_name(key) if kinds[_kind(value[key])] > 1 and _holds(value[key]) else is_plain(key)


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_surely_name(key: str) -> bool:
    return is_plain(key) and is_field_name(key)


def _kind(value: Any) -> Any:
    """Objects, lists, numbers, and so on."""
    return float if type(value) is int else type(value)
