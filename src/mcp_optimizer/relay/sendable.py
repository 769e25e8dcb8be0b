"""What can be written as JSON for any client, out of whatever a server sent. Pure.

JSON can carry halves of surrogate pairs, numbers without end and any depth, and what writes to clients can not: one
such value would cost a client its stream. Called where results, errors, notifications and questions go out.
"""

from __future__ import annotations

import math
import re
from typing import Any

_DEEPEST = 190
"""Levels that what writes JSON can be sure to write, with those of the message around them."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class TooDeep(ValueError):
    """It is nested more deeply than it can be written."""


def sendable(value: dict[str, Any]) -> dict[str, Any]:
    """The value itself, nearly always; else with what cannot be written replaced. Raises TooDeep."""
    mended = False
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                mended = mended or not _is_text(item)
            elif kind is dict:
                mended = mended or not all(map(_is_text, item))
                below.extend(item.values())
            elif kind is list or kind is tuple:
                below.extend(item)
            elif kind is float:
                mended = mended or not math.isfinite(item)
        if not below:
            return _mended(value) if mended else value
        level = below
    raise TooDeep(f"nested more than {_DEEPEST} levels deep")


def _is_text(text: Any) -> bool:
    return not isinstance(text, str) or text.isascii() or not _HALF_PAIR.search(text)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
