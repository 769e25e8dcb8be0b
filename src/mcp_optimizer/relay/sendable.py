"""Turns whatever a server sent into JSON that can be written for any client. Pure.

JSON can contain half surrogate pairs, infinite numbers and any depth, which our writers cannot write: one such value
would cost a client its stream. Called where results, errors, notifications and questions go out.
"""

from __future__ import annotations

import math
import re
from typing import Any

_DEEPEST = 190
"""Levels that our JSON writers can safely write, including those of the message around them."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class TooDeep(ValueError):
    """Nested more deeply than can be written."""


def sendable(value: dict[str, Any]) -> dict[str, Any]:
    """Nearly always the value itself; otherwise a copy with unwritable parts replaced. Raises TooDeep."""
    mended = False
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                mended = mended or not (item.isascii() or _is_text(item))
            elif kind is dict:
                # Not by a call for each key: nearly all are short names.
                for key in item:
                    if type(key) is not str or not key.isascii():
                        mended = mended or not _is_text(key)
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
