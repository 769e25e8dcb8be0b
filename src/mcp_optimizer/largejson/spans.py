"""Finds positions in a JSON text without parsing it: the items of a container, long strings.

A result may be fifty megabytes; parsing it would take many times that and hold the interpreter meanwhile. A few numpy
passes over small chunks find the strings and the structure outside them. Pure; assumes that the text is JSON, and
reports malformed text as never closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    import numpy.typing as npt

_QUOTE, _BACKSLASH = 34, 92
_WORD = 64
_DOUBLED = (1, 2, 4, 8, 16, 32)


def quotes_of(chunk: npt.NDArray[np.uint8], first_is_escaped: bool = False) -> tuple[npt.NDArray[np.bool_], bool]:
    """For each byte, whether it is a quote that begins or ends a string; and whether the first character of the next
    chunk is escaped.
    """
    escaped, is_escaped = _escaped(chunk, first_is_escaped)
    is_quote = chunk == _QUOTE
    is_quote[escaped[escaped < len(chunk)]] = False
    return is_quote, is_escaped


def in_strings(is_quote: npt.NDArray[np.bool_], begins_inside: bool = False) -> npt.NDArray[np.bool_]:
    """For each byte, whether it is in a string, from the opening quote to before the closing one."""
    # A byte is in a string after an odd number of quotes. Counting byte by byte takes four times as long as 64 at a
    # time: first within each word, doubling the number of preceding bits that each bit covers, then across words.
    packed = np.packbits(is_quote, bitorder="little")
    words = np.zeros(-(-len(is_quote) // _WORD), dtype="<u8")
    words.view(np.uint8)[: len(packed)] = packed
    for bits in _DOUBLED:
        words ^= words << np.uint64(bits)
    is_odd = (words >> np.uint64(_WORD - 1)).astype(np.uint8)
    before = np.cumsum(is_odd, dtype=np.uint8) - is_odd + np.uint8(begins_inside)
    words ^= np.negative((before & 1).astype("<u8"))
    return np.unpackbits(words.view(np.uint8), count=len(is_quote), bitorder="little").view(np.bool_)


def _escaped(chunk: npt.NDArray[np.uint8], first_is_escaped: bool) -> tuple[npt.NDArray[np.signedinteger[Any]], bool]:
    """The positions after an escaping backslash, and whether an escape continues into the next chunk."""
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


if TYPE_CHECKING:
    import numpy.typing as npt

    Positions = npt.NDArray[np.signedinteger[Any]]
    """The integer type is as narrow as possible, because there may be millions of short items."""
else:
    Positions = Any

Buffer = bytes | bytearray | memoryview

_CHUNK = 256 * 1024
_COMMA, _CURLY = 44, 32
_OPENING, _CLOSING = b"{[", b"}]"
BLANKS = b" \t\r\n"

_KEY = regex(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)


@dataclass(frozen=True)
class ItemSpans:
    """The items of a container, each from its start (including whitespace) to the comma or bracket after it."""

    starts: Positions
    ends: Positions
    close: int
    """The position of the closing bracket."""


@cache
def _steps() -> npt.NDArray[np.int64]:
    """For each byte value, the change of nesting depth after it."""
    found = np.zeros(256, dtype=np.int64)
    found[list(_OPENING)] = 1
    found[list(_CLOSING)] = -1
    return found


def first_filled(data: Buffer, at: int) -> int:
    """The first position from `at` on that is not whitespace."""
    while at < len(data) and data[at] in BLANKS:
        at += 1
    return at


class Structure:
    """The brackets and commas of a JSON text outside strings, found once for all of its containers."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self._found = list(_structure(data, first_filled(data, 0)))

    def items_of(self, at: int) -> ItemSpans | None:
        """The same as the function `items_of`, for this text."""
        return _items_in(self.data, at, self._since(at)) if _opens(self.data, at) else None

    def _since(self, at: int) -> Iterator[tuple[Positions, npt.NDArray[np.uint8]]]:
        for positions, codes in self._found:
            first = int(np.searchsorted(positions, at))
            if first < len(positions):
                yield positions[first:], codes[first:]


def items_of(data: Buffer, at: int) -> ItemSpans | None:
    """The items of the container that opens at `at`; None if no container opens there or it never closes."""
    return _items_in(data, at, _structure(data, at)) if _opens(data, at) else None


def _opens(data: Buffer, at: int) -> bool:
    return at < len(data) and data[at] in _OPENING


def _items_in(data: Buffer, at: int, marks: Iterator[tuple[Positions, npt.NDArray[np.uint8]]]) -> ItemSpans | None:
    commas: list[Positions] = []
    depth = 0
    for positions, codes in marks:
        depths = depth + np.cumsum(_steps()[codes])
        over = np.flatnonzero(depths == 0)
        stop = int(over[0]) if over.size else len(codes)
        commas.append(positions[:stop][(codes[:stop] == _COMMA) & (depths[:stop] == 1)])
        if over.size:
            return _items(data, at, commas, int(positions[stop]))
        depth = int(depths[-1]) if depths.size else depth
    return None


def _items(data: Buffer, at: int, commas: list[Positions], close: int) -> ItemSpans:
    kind = position_type(data)
    edges = np.concatenate([np.array([at], kind), *commas, np.array([close], kind)])
    # One copy of the commas is enough.
    commas.clear()
    if len(edges) == 2 and first_filled(data, at + 1) == close:
        none = np.zeros(0, kind)
        return ItemSpans(none, none, close)
    return ItemSpans(edges[:-1] + 1, edges[1:], close)


def position_type(data: Buffer) -> type[np.signedinteger[Any]]:
    """The narrowest integer type that holds any position in the data, with some to spare."""
    return np.int32 if len(data) < 1 << 30 else np.int64


def _structure(data: Buffer, at: int) -> Iterator[tuple[Positions, npt.NDArray[np.uint8]]]:
    """Brackets and commas outside strings from `at` on, chunk by chunk: positions and characters."""
    in_string, is_escaped, kind = False, False, position_type(data)
    for begin in range(at, len(data), _CHUNK):
        chunk = _chunk(data, begin)
        is_quote, is_escaped = quotes_of(chunk, is_escaped)
        is_inside = in_strings(is_quote, in_string)
        in_string = bool(is_inside[-1])
        is_mark = _is_structure(chunk)
        is_mark &= ~is_inside
        marks = np.flatnonzero(is_mark)
        yield (marks + begin).astype(kind), chunk[marks]


def _is_structure(chunk: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """For each byte, whether it is a bracket or a comma."""
    # A curly bracket has one bit more than the square one. In place, because allocating an array for each step takes
    # several times as long as the steps.
    curly = chunk | _CURLY
    found: npt.NDArray[np.bool_] = curly == _OPENING[0]
    another = curly == _CLOSING[0]
    found |= another
    found |= np.equal(chunk, _COMMA, out=another)
    return found


def structure_marks(data: Buffer, enough: int) -> int:
    """The number of brackets and commas outside strings; stops counting above `enough`."""
    found = 0
    for positions, _ in _structure(data, 0):
        found += len(positions)
        if found > enough:
            break
    return found


def _chunk(data: Buffer, begin: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8, count=min(_CHUNK, len(data) - begin), offset=begin)


def value_start(data: Buffer, start: int, *, in_object: bool) -> int:
    """The start of an item's value, after its key if it has one."""
    if in_object and (key := _KEY.match(data, start)) is not None:
        return key.end()
    return first_filled(data, start)


def key_of(data: Buffer, start: int) -> bytes:
    """The key of an object's item, as JSON text."""
    key = _KEY.match(data, start)
    return bytes(key.group(1)) if key is not None else b""


def long_strings(data: Buffer, longer_than: int) -> list[tuple[int, int]]:
    """Strings longer than `longer_than` bytes, from after the opening quote to the closing one."""
    found: list[tuple[int, int]] = []
    last, in_string, is_escaped = -1, 0, False
    for begin in range(0, len(data), _CHUNK):
        is_quote, is_escaped = quotes_of(_chunk(data, begin), is_escaped)
        quotes = np.flatnonzero(is_quote)
        if not quotes.size:
            continue
        marks = np.concatenate([np.array([last], dtype=np.int64), quotes + begin])
        # Every second gap is inside a string; which ones depends on the state at the start of the chunk.
        gaps = np.flatnonzero(np.diff(marks) > longer_than).tolist()
        found += [(int(marks[at]) + 1, int(marks[at + 1])) for at in gaps if (at + in_string) % 2 == 1]
        in_string = (in_string + len(quotes)) % 2
        last = int(marks[-1])
    return found


def decoded_parts(data: Buffer, start: int, end: int, chunk: int = 1 << 19) -> Iterator[str]:
    """The decoded content of a JSON string, in parts, because decoding holds the interpreter."""
    while start < end:
        part = bytes(data[start : min(start + chunk, end)])
        if start + chunk < end:
            part = whole_escapes(part) or part
        yield json.loads(b'"' + part + b'"')
        start += len(part)


_PART = 64 * 1024
"""Bytes parsed at once."""

_DEEPEST = 16
"""Maximum depth of containers that are divided; deeper ones are small or hostile."""


def value_in_parts(data: Buffer, at: int, end: int, parse: Callable[[bytes], Any], *, keep: bool = True) -> Any:
    """The JSON value between two positions, its items parsed a few at a time; without `keep`, only checked."""
    return _in_parts(data, at, end, parse, keep, _DEEPEST)


def _in_parts(data: Buffer, at: int, end: int, parse: Callable[[bytes], Any], keep: bool, depth: int) -> Any:
    at = first_filled(data, at)
    items = items_of(data, at) if end - at > _PART and depth else None
    if items is None or first_filled(data, items.close + 1) < end or not items.starts.size:
        return parse(bytes(data[at:end]))
    in_object = data[at] == _OPENING[0]
    opening, closing = (b"{", b"}") if in_object else (b"[", b"]")
    whole: Any = {} if in_object else []
    for start, stop in _batches(items):
        inner = value_start(data, start, in_object=in_object)
        if stop - start > _PART and data[inner] in _OPENING:
            value = _in_parts(data, inner, stop, parse, keep, depth - 1)
            some = {parse(key_of(data, start)): value} if in_object else [value]
        else:
            some = parse(opening + bytes(data[start:stop]) + closing)
        if not keep:
            continue
        if in_object:
            whole.update(some)
        else:
            whole.extend(some)
    return whole


def _batches(items: ItemSpans) -> Iterator[tuple[int, int]]:
    """Spans of adjacent items, enough to fill a part; a larger item is a batch of its own."""
    at = 0
    while at < len(items.starts):
        start = int(items.starts[at])
        end = max(int(np.searchsorted(items.ends, start + _PART, side="right")), at + 1)
        yield start, int(items.ends[end - 1])
        at = end


_HALF_PAIR = regex(rb"\\u[dD][89abAB][0-9a-fA-F]{2}$")


def whole_escapes(part: bytes) -> bytes:
    """The part without an incomplete escape, pair of escapes, or character at its end."""
    part = whole_characters(part)
    slash = part.rfind(b"\\", max(0, len(part) - 6))
    if slash >= 0:
        run = slash
        while run > 0 and part[run - 1 : run] == b"\\":
            run -= 1
        escapes = (slash - run) % 2 == 0
        needed = 6 if part[slash + 1 : slash + 2] == b"u" else 2
        if escapes and len(part) - slash < needed:
            part = part[:slash]
    if _HALF_PAIR.search(part[-6:]) and _escapes_at(part, len(part) - 6):
        part = part[:-6]
    return part


def _escapes_at(part: bytes, at: int) -> bool:
    run = at
    while run > 0 and part[run - 1 : run] == b"\\":
        run -= 1
    return (at - run) % 2 == 0


def whole_characters(part: bytes) -> bytes:
    """The part without an incomplete character at its end."""
    for back in range(1, min(4, len(part)) + 1):
        byte = part[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return part if length <= back else part[:-back]
    return part
