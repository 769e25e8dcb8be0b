"""Reads a message of many megabytes without blocking other work, and without turning all of it into objects.

The parser holds the interpreter from the first byte to the last. So long strings are taken out first, and the items of
large containers are parsed a few at a time. The large parts of a result, its texts and structured content, stay text
of the message. Called in a thread; pure.
"""

from __future__ import annotations

import io
import json
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic_core

from mcp_optimizer.largejson.raw import LargeText, LargeValue, RawJson, at_large_places, write_in_parts
from mcp_optimizer.largejson.spans import (
    Buffer,
    first_filled,
    items_of,
    key_of,
    long_strings,
    value_in_parts,
    value_start,
)
from mcp_optimizer.runtime.lazy_numpy import np

LARGE = 1_000_000
"""Minimum bytes of a message that is read this way."""

_LONG = 64 * 1024
"""Bytes above which a string is taken out."""

_LARGE_VALUE = 256 * 1024
"""Bytes above which structured content stays text."""

_COMPARED = 1 << 20

Span = tuple[int, int]


def read_large(line: bytes | bytearray, parse: Callable[[bytes], Any]) -> Any:
    """The message as `parse` would return it, but with large values of a result as text; raises ValueError."""
    skeleton = _Skeleton.of(line)
    view = memoryview(line)
    raw: dict[str, RawJson] = {}
    structured = _structured(skeleton.data)
    same = _repeated(line, skeleton, structured) if structured is not None else {}
    if structured is not None and same is None and _is_json(line, skeleton, structured):
        start, end = skeleton.in_line(structured[0]), skeleton.in_line(structured[1])
        skeleton = skeleton.without(structured)
        raw[f"{skeleton.mark}s"] = LargeValue(view[start:end], parse)
    for number, (start, end) in skeleton.strings.items():
        if same is None or number not in same:
            raw[f"{skeleton.mark}{number}"] = LargeText(view[start - 1 : end + 1])
    for number, other in (same or {}).items():
        raw[f"{skeleton.mark}{number}"] = raw[f"{skeleton.mark}{other}"]
    message = value_in_parts(skeleton.data, 0, len(skeleton.data), parse)
    if not raw:
        return message
    if isinstance(message, dict) and isinstance(result := message.get("result"), dict):
        message["result"] = at_large_places(result, lambda value: _put_back(value, raw))
    return _with_texts(message, raw)


def _put_back(value: Any, raw: Mapping[str, RawJson]) -> Any:
    return raw.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class _Skeleton:
    """A message without its long strings, each replaced by a mark, and the strings' positions."""

    data: Buffer
    mark: str
    strings: Mapping[int, Span]
    """The positions of the strings in the line, by number."""
    places: tuple[int, ...]
    """The ends of the marks in the data."""
    shifts: tuple[int, ...]
    """For each mark: how much longer the line is than the data up to its end."""

    @classmethod
    def of(cls, line: Buffer) -> _Skeleton:
        strings = long_strings(line, _LONG)
        if not strings:
            return cls(line, secrets.token_hex(16), {}, (), ())
        # The mark cannot be guessed, so no text in the message can be mistaken for one.
        mark = secrets.token_hex(16)
        view, rest = memoryview(line), io.BytesIO()
        places, shifts = [], []
        at = 0
        for number, (start, end) in enumerate(strings):
            write_in_parts(view[at:start], rest)
            rest.write(f"{mark}{number}".encode())
            at = end
            places.append(rest.tell())
            shifts.append(end - rest.tell())
        write_in_parts(view[at:], rest)
        return cls(rest.getvalue(), mark, dict(enumerate(strings)), tuple(places), tuple(shifts))

    def in_line(self, place: int) -> int:
        """The position in the line of a place in the data that is outside the strings."""
        before = bisect_right(self.places, place)
        return place + (self.shifts[before - 1] if before else 0)

    def inside(self, span: Span) -> range:
        """The numbers of the strings in a part of the data."""
        return range(bisect_left(self.places, span[0]), bisect_left(self.places, span[1]))

    def without(self, span: Span) -> _Skeleton:
        """The skeleton with a mark in place of a value; only for reading, because positions in the line are lost."""
        view = memoryview(self.data)
        data = b"".join([view[: span[0]], f'"{self.mark}s"'.encode(), view[span[1] :]])
        inside = self.inside(span)
        strings = {number: where for number, where in self.strings.items() if number not in inside}
        return _Skeleton(data, self.mark, strings, (), ())


def _structured(data: Buffer) -> Span | None:
    """The position of a result's structured content."""
    span: Span | None = (first_filled(data, 0), len(data))
    for key in ("result", "structuredContent"):
        span = _value_of(data, span[0], key) if span is not None and data[span[0] : span[0] + 1] == b"{" else None
    return span if span is not None and data[span[0] : span[0] + 1] in (b"{", b"[") else None


def _value_of(data: Buffer, at: int, key: str) -> Span | None:
    items = items_of(data, at)
    found: Span | None = None
    spans = zip(items.starts.tolist(), items.ends.tolist(), strict=True) if items is not None else ()
    for start, end in spans:
        if key_of(data, start) == f'"{key}"'.encode():
            # If a key occurs twice, JSON parsers take the last.
            found = (value_start(data, start, in_object=True), end)
    return found


def _repeated(line: Buffer, skeleton: _Skeleton, structured: Span) -> dict[int, int] | None:
    """Map long strings in the structured content to the same strings outside it; None if it is large otherwise.

    File servers, for example, repeat a long text of the result in otherwise small structured content.
    """
    if structured[1] - structured[0] > _LARGE_VALUE:
        return None
    inside = skeleton.inside(structured)
    outside = {number: span for number, span in skeleton.strings.items() if number not in inside}
    found: dict[int, int] = {}
    for number in inside:
        span = skeleton.strings[number]
        same = next((other for other, place in outside.items() if _is_same(line, span, place)), None)
        if same is None:
            return None
        found[number] = same
    return found


def _is_same(line: Buffer, one: Span, other: Span) -> bool:
    length = one[1] - one[0]
    if length != other[1] - other[0]:
        return False
    data = np.frombuffer(line, dtype=np.uint8)
    steps = (slice(at, min(at + _COMPARED, length)) for at in range(0, length, _COMPARED))
    first, second = data[one[0] : one[1]], data[other[0] : other[1]]
    return all(np.array_equal(first[step], second[step]) for step in steps)


def _is_json(line: Buffer, skeleton: _Skeleton, span: Span) -> bool:
    """Whether a part is JSON that every client can read, so it may be passed on unchanged."""
    try:
        value_in_parts(skeleton.data, *span, _strict, keep=False)
        for number in skeleton.inside(span):
            start, end = skeleton.strings[number]
            LargeText(memoryview(line)[start - 1 : end + 1])
    except (ValueError, RecursionError):
        return False
    return True


def _strict(data: bytes) -> Any:
    try:
        return pydantic_core.from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        # Half a surrogate pair is not valid text, but JSON can carry it.
        return json.loads(data, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _with_texts(value: Any, raw: Mapping[str, RawJson]) -> Any:
    """The value with all remaining marks replaced by their strings, including in keys."""
    if isinstance(value, str):
        return raw[value].parsed() if value in raw else value
    if isinstance(value, list):
        return [_with_texts(item, raw) for item in value]
    if isinstance(value, dict):
        return {_with_texts(key, raw): _with_texts(item, raw) for key, item in value.items()}
    return value
