"""Reads a client's JSON strictly and within limits; a large one without blocking everything else. Pure.

Called by the gate. Accepts only what can be sent to any server: valid text, numbers that JSON can write, and a limited
number of values. Knows nothing of MCP.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pydantic_core

from mcp_optimizer.largejson.reading import LARGE, read_large
from mcp_optimizer.largejson.spans import structure_marks

_LONG = 10_000
"""Characters from which a text may have been read separately."""

_PART = 256 * 1024
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class NotReadable(ValueError):
    """What is wrong, for the sender. Quotes nothing of the content."""


def read_json(data: bytes | bytearray, most_values: int) -> Any:
    """The value; raises NotReadable."""
    if len(data) > most_values and structure_marks(data, most_values) > most_values:
        raise NotReadable(f"there are more than {most_values:,} values in it")
    try:
        if len(data) < LARGE:
            value = pydantic_core.from_json(data, allow_inf_nan=False, cache_strings="keys")
        else:
            value = read_large(data, _strict)
    except RecursionError:
        raise NotReadable("it is nested too deeply") from None
    except ValueError as error:
        # The parser says what it expected and where, and quotes nothing.
        raise NotReadable(str(error)) from None
    if not _can_be_written(value):
        raise NotReadable("a number in it is too large, or a text is half of a surrogate pair")
    return value


def _strict(data: bytes | bytearray) -> Any:
    return pydantic_core.from_json(data, allow_inf_nan=False, cache_strings="keys")


def _can_be_written(value: Any) -> bool:
    """Rejects 1e999, which is read as infinity, and long texts with half surrogate pairs, which the parser does not
    check.
    """
    level = [value]
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if len(item) > _LONG and not item.isascii() and _has_half_pair(item):
                    return False
            elif kind is dict:
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is float and not math.isfinite(item):
                return False
        level = below
    return True


def _has_half_pair(text: str) -> bool:
    """In parts, because each part holds the interpreter."""
    return any(_HALF_PAIR.search(text, at, at + _PART) for at in range(0, len(text), _PART))
