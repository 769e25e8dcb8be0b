"""Cuts a text to what fits, at a boundary that its reader knows: a row, an element, a line, a word.

What remains of JSON is JSON of the same shape. Pure: what fits is decided by whoever asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_optimizer.results.layout import Layout, trunk
from mcp_optimizer.results.spans import first_filled, value_start

Fits = Callable[[bytes], bool]

_WORD_SEARCH = 200
"""Bytes before a cut in which the end of a line or word is looked for."""

_CLOSE_ENOUGH = 50


@dataclass(frozen=True)
class Cut:
    """What remains of a text, and how much of the text, from its beginning, is all shown."""

    data: bytes
    shown_until: int
    layout: Layout | None = None
    items: int = 0
    """How many of the layout's items remain whole."""


def most(count: int, fits: Callable[[int], bool]) -> int | None:
    """About the largest number up to `count` that fits, tried from below; None when not even 0 does.

    From below, because what is far too large takes long to measure; about, because the last few of many items
    are not worth as many measurements.
    """
    if not fits(0):
        return None
    good, step = 0, 1
    while good < count and fits(min(good + step, count)):
        good = min(good + step, count)
        step *= 2
    bad = min(good + step, count + 1)
    while bad - good > max(1, good // _CLOSE_ENOUGH):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def cut_json(data: bytes, fits: Fits, layouts: Sequence[Layout] | None = None) -> Cut:
    """Cut where the bulk is; where that is not enough, further out; and inside an item that is too large alone."""
    for layout in trunk(data) if layouts is None else layouts:
        kept = most(layout.count, lambda n, layout=layout: fits(layout.kept(n)))  # type: ignore[misc]
        if kept:
            return Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
        if kept == 0:
            inner = _cut_first_item(layout, fits)
            return inner or Cut(layout.kept(0), layout.shown_until(0), layout, 0)
    at = first_filled(data, 0)
    opening = data[at : at + 1]
    if opening == b'"':
        return Cut(_string_prefix(data[at:], fits), 0)
    return Cut({b"{": b"{}", b"[": b"[]"}.get(opening, b"null"), 0)


def _cut_first_item(layout: Layout, fits: Fits) -> Cut | None:
    """Part of the first item, where not even that one fits whole."""
    start, end = int(layout.starts[0]), int(layout.ends[0])
    if layout.unit == "lines":
        at = start
        head, tail = layout.data[:at], layout.data[layout.tail :]
        line = b'"' + layout.data[start:end] + b'"'
        part = _string_prefix(line, lambda text: fits(head + text[1:-1] + tail))[1:-1]
        return Cut(head + part + tail, start, layout, 0) if part else None
    at = value_start(layout.data, start, in_object=layout.in_object)
    value = layout.data[at:end]
    if value[:1] not in (b"{", b"[", b'"'):
        return None
    head, tail = layout.data[:at], layout.data[layout.tail :]
    if not fits(head + _EMPTY[value[:1]] + tail):
        return None
    inner = cut_json(value, lambda text: fits(head + text + tail))
    return Cut(head + inner.data + tail, start, layout, 0)


_EMPTY = {b"{": b"{}", b"[": b"[]", b'"': b'""'}


def _string_prefix(string: bytes, fits: Fits) -> bytes:
    """The beginning of a JSON string that fits, as a JSON string."""
    body = string.rstrip()[1:-1]
    length = most(len(body), lambda n: fits(b'"' + whole_escapes(body[:n]) + b'"'))
    if not length:
        return b'""'
    part = whole_escapes(body[:length])
    return b'"' + whole_escapes(at_word_end(part, (b"\\n", b" "))) + b'"'


_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}$")


def whole_escapes(part: bytes) -> bytes:
    """Without the half of an escape, of a pair of escapes, or of a character, that a cut left at the end."""
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
    """Without the beginning of a character that a cut left at the end."""
    for back in range(1, min(4, len(part)) + 1):
        byte = part[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return part if length <= back else part[:-back]
    return part


def at_word_end(part: bytes, ends: Sequence[bytes] = (b"\n", b" ")) -> bytes:
    """Up to the last line or word that ends near the cut; all of it when none does."""
    for end in ends:
        at = part.rfind(end, max(1, len(part) - _WORD_SEARCH))
        if at > 0:
            return part[: at + len(end)]
    return part


def cut_text(layout: Layout, fits: Fits) -> Cut:
    """Cut at the end of a line or row; inside the first one only where not even that fits."""
    kept = most(layout.count, lambda n: fits(layout.kept(n)))
    if kept:
        return Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
    # One line is too long, or the head of a table, or what follows it: at a word, then.
    return _text_prefix(layout.data, fits)


def _text_prefix(data: bytes, fits: Fits) -> Cut:
    length = most(len(data), lambda n: fits(whole_characters(data[:n])))
    part = at_word_end(whole_characters(data[: length or 0]))
    return Cut(part, len(part))
