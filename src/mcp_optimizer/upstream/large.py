"""Reads a message of many megabytes without stopping everything else.

The parser holds the interpreter from the first byte to the last. Long strings are therefore taken out and decoded
piece by piece, and of what remains the items of large containers are parsed some at a time. Called in a thread; pure.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mcp_optimizer.json_spans import (
    Items,
    decoded_string,
    first_filled,
    items_of,
    key_of,
    long_strings,
    value_start,
)

LARGE = 1_000_000
"""Bytes from which a message is read this way."""

_PART = 256 * 1024
"""Bytes that are parsed at once."""

_LONG = 64 * 1024
"""Bytes from which a string is taken out."""


def read_large(line: bytes, parse: Callable[[bytes], Any]) -> Any:
    """The message, as `parse` would give it; raises ValueError where that does."""
    strings = long_strings(line, _LONG)
    # Nobody outside can know the mark, so nothing in the message can be taken for one.
    mark = secrets.token_hex(16)
    rest: list[bytes] = []
    at = 0
    for number, (start, end) in enumerate(strings):
        rest += [line[at:start], f"{mark}{number}".encode()]
        at = end
    rest.append(line[at:])
    message = _in_parts(b"".join(rest), parse)
    if not strings:
        return message
    texts = {f"{mark}{number}": decoded_string(line, *span) for number, span in enumerate(strings)}
    return _with_texts(message, texts)


def _in_parts(data: bytes, parse: Callable[[bytes], Any]) -> Any:
    """The value of a JSON text, its items parsed some at a time."""
    at = first_filled(data, 0)
    items = items_of(data, at) if len(data) > _PART else None
    if items is None or first_filled(data, items.close + 1) < len(data) or not items.starts.size:
        return parse(data)
    opening, closing = data[at : at + 1], data[items.close : items.close + 1]
    whole: Any = {} if opening == b"{" else []
    add = whole.update if opening == b"{" else whole.extend
    for start, end in _batches(items):
        if (
            end - start > _PART
            and (inner := _large_item(data, start, end, parse, in_object=opening == b"{")) is not None
        ):
            add(inner)
        else:
            add(parse(opening + data[start:end] + closing))
    return whole


def _batches(items: Items) -> Iterator[tuple[int, int]]:
    """Neighbouring items, as many as make a part; one that is larger stands alone."""
    at = 0
    while at < len(items.starts):
        start = int(items.starts[at])
        end = max(int(np.searchsorted(items.ends, start + _PART, side="right")), at + 1)
        yield start, int(items.ends[end - 1])
        at = end


def _large_item(data: bytes, start: int, end: int, parse: Callable[[bytes], Any], *, in_object: bool) -> Any:
    """One item that is too large for a part, as a list or object of it alone."""
    at = value_start(data, start, in_object=in_object)
    if data[at : at + 1] not in (b"{", b"["):
        return None
    value = _in_parts(data[at:end], parse)
    return {parse(key_of(data, start)): value} if in_object else [value]


def _with_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """The value with its strings put back, wherever they were taken out; keys, too."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [_with_texts(item, texts) for item in value]
    if isinstance(value, dict):
        return {texts.get(key, key): _with_texts(item, texts) for key, item in value.items()}
    return value
