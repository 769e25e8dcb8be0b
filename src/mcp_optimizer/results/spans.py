"""Where the items of a JSON array or object stand in its text, found without parsing it.

A result may be fifty megabytes: parsed, it would be many times that, and the interpreter would be held for
as long. Here a few numpy passes over small chunks find the commas at one depth, outside strings. Pure; the
text is taken to be JSON, and what it is not is never claimed to be closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_CHUNK = 256 * 1024
_QUOTE, _BACKSLASH, _COMMA = 34, 92, 44
_OPENING, _CLOSING = b"{[", b"}]"
BLANKS = b" \t\r\n"

_IS_STRUCTURE = np.zeros(256, dtype=np.bool_)
_IS_STRUCTURE[list(_OPENING + _CLOSING + b",")] = True
_STEP = np.zeros(256, dtype=np.int64)
_STEP[list(_OPENING)] = 1
_STEP[list(_CLOSING)] = -1

_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)


@dataclass(frozen=True)
class Items:
    """The items of a container: each from its start (blanks included) to the comma or bracket after it."""

    starts: Positions
    ends: Positions
    close: int
    """Where the closing bracket stands."""


def first_filled(data: bytes, at: int) -> int:
    """The first position from `at` on that is no blank."""
    while at < len(data) and data[at] in BLANKS:
        at += 1
    return at


def items_of(data: bytes, at: int) -> Items | None:
    """The items of the container that opens at `at`; None when it does not open there, or never closes."""
    if at >= len(data) or data[at] not in _OPENING:
        return None
    commas: list[Positions] = []
    depth = 0
    for positions, codes in _structure(data, at):
        depths = depth + np.cumsum(_STEP[codes])
        over = np.flatnonzero(depths == 0)
        stop = int(over[0]) if over.size else len(codes)
        commas.append(positions[:stop][(codes[:stop] == _COMMA) & (depths[:stop] == 1)])
        if over.size:
            return _items(data, at, np.concatenate(commas), int(positions[stop]))
        depth = int(depths[-1]) if depths.size else depth
    return None


def _items(data: bytes, at: int, commas: Positions, close: int) -> Items:
    if not commas.size and first_filled(data, at + 1) == close:
        none = np.zeros(0, dtype=np.int64)
        return Items(none, none, close)
    starts = np.concatenate([np.array([at + 1], dtype=np.int64), commas + 1])
    ends = np.concatenate([commas, np.array([close], dtype=np.int64)])
    return Items(starts, ends, close)


def _structure(data: bytes, at: int) -> Iterator[tuple[Positions, npt.NDArray[np.uint8]]]:
    """Brackets and commas outside strings from `at` on, a chunk at a time: where, and which."""
    in_string, is_escaped = 0, False
    for begin in range(at, len(data), _CHUNK):
        chunk = np.frombuffer(data, dtype=np.uint8, count=min(_CHUNK, len(data) - begin), offset=begin)
        escaped, is_escaped = _escaped(chunk, is_escaped)
        quotes = np.flatnonzero(chunk == _QUOTE)
        if escaped.size:
            quotes = quotes[~np.isin(quotes, escaped)]
        marks = np.flatnonzero(_IS_STRUCTURE[chunk])
        outside = (np.searchsorted(quotes, marks) + in_string) % 2 == 0
        marks = marks[outside]
        in_string = (in_string + len(quotes)) % 2
        yield marks + begin, chunk[marks]


def _escaped(chunk: npt.NDArray[np.uint8], first_is_escaped: bool) -> tuple[Positions, bool]:
    """The positions after a backslash that escapes, and whether that goes on into the next chunk."""
    slashes = np.flatnonzero(chunk == _BACKSLASH)
    first = np.zeros(1 if first_is_escaped else 0, dtype=np.int64)
    if first_is_escaped and slashes.size and slashes[0] == 0:
        slashes = slashes[1:]
    if not slashes.size:
        return first, False
    breaks = np.flatnonzero(np.diff(slashes) != 1)
    begins = slashes[np.concatenate([np.zeros(1, dtype=np.int64), breaks + 1])]
    lasts = slashes[np.concatenate([breaks, np.array([len(slashes) - 1])])]
    after = (lasts + 1)[(lasts - begins) % 2 == 0]
    goes_on = bool(after.size and after[-1] == len(chunk))
    return np.concatenate([first, after]), goes_on


def value_start(data: bytes, start: int, *, in_object: bool) -> int:
    """Where the value of an item begins: after its key, if it has one."""
    if in_object and (key := _KEY.match(data, start)) is not None:
        return key.end()
    return first_filled(data, start)


def key_of(data: bytes, start: int) -> bytes:
    """The key of an object's item, as JSON text."""
    key = _KEY.match(data, start)
    return key.group(1) if key is not None else b""
