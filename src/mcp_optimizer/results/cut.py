"""Cuts a text to fit, at a boundary its reader recognises: a row, an element, a line, a word.

JSON stays JSON of the same shape. Pure: the caller decides what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcp_optimizer.largejson.spans import first_filled, value_start, whole_characters, whole_escapes
from mcp_optimizer.results.layout import Layout, trunk
from mcp_optimizer.results.room import Counted, Room

Fits = Callable[[bytes], bool]
"""Whether a text fits. A `Room` also says how much of a text fits without trying often."""

_WORD_SEARCH = 200
"""Bytes before a cut that are searched for the end of a line or word."""

_CLOSE_ENOUGH = 50

_PLAIN = 4_096
"""Bytes up to which an item counts as plain. A plain item is shown completely or not at all."""


@dataclass(frozen=True)
class Cut:
    """The remaining text, and how many bytes from the start of the original are completely shown."""

    data: bytes
    shown_until: int
    layout: Layout | None = None
    items: int = 0
    """How many of the layout's items remain complete."""


def most(count: int, fits: Callable[[int], bool]) -> int | None:
    """Approximately the largest number up to `count` that fits, tried from below; None if not even 0 fits.

    From below, because a text that is far too large takes long to measure. Approximately, because the last few of many
    items are not worth as many measurements.
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


def _most_kept(layout: Layout, fits: Fits) -> int | None:
    if isinstance(fits, Room):
        return fits.most(layout.counted)
    return most(layout.count, lambda n: fits(layout.kept(n)))


def _longest(data: bytes, kept: Callable[[int], bytes], fits: Fits) -> int | None:
    """The most bytes of a string or text that fit, as `kept` shows them."""
    if isinstance(fits, Room):
        return fits.most(Counted(data, len(data), lambda n: n, kept, are_in_string=True))
    return most(len(data), lambda n: fits(kept(n)))


def _between(fits: Fits, head: bytes, tail: bytes) -> Fits:
    return fits.around(head, tail) if isinstance(fits, Room) else lambda text: fits(head + text + tail)


def cut_json(data: bytes, fits: Fits, rows: Layout | None = None) -> Cut:
    """Cut the rows or the largest container; if that is not enough, cut further out; cut inside an item that alone is
    too large.
    """
    for layout in _to_cut(data, rows):
        kept = _most_kept(layout, fits)
        if kept is not None:
            whole = Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
            next_size = int(layout.ends[kept] - layout.starts[kept]) if kept < layout.count else 0
            # Half a plain row is useless, so show none of it; but part of a branch is better than next to nothing.
            is_branch = next_size > max(len(whole.data), _PLAIN)
            return (_with_part_of(layout, kept, fits) if not kept or is_branch else None) or whole
    at = first_filled(data, 0)
    opening = data[at : at + 1]
    if opening == b'"':
        return Cut(b'"' + _string_prefix(data[at:].rstrip()[1:-1], _between(fits, b'"', b'"')) + b'"', 0)
    return Cut({b"{": b"{}", b"[": b"[]"}.get(opening, b"null"), 0)


def _to_cut(data: bytes, rows: Layout | None) -> Iterator[Layout]:
    if rows is not None:
        yield rows
    yield from trunk(data)


def _with_part_of(layout: Layout, number: int, fits: Fits) -> Cut | None:
    """Everything before an item, plus the part of that item that fits."""
    if number >= layout.count:
        return None
    data, start, end = layout.data, int(layout.starts[number]), int(layout.ends[number])
    tail = data[layout.tail :]
    if layout.unit == "lines":
        head = data[:start]
        part = _string_prefix(data[start:end], _between(fits, head, tail))
        return Cut(head + part + tail, start, layout, number) if part else None
    at = value_start(data, start, in_object=layout.in_object)
    head, value = data[:at], data[at:end]
    empty = _EMPTY.get(value[:1])
    if empty is None or not fits(head + empty + tail):
        return None
    inner = cut_json(value, _between(fits, head, tail))
    return Cut(head + inner.data + tail, start, layout, number)


_EMPTY = {b"{": b"{}", b"[": b"[]", b'"': b'""'}


def _string_prefix(body: bytes, fits: Fits) -> bytes:
    """The beginning of what a JSON string contains that fits."""
    length = _longest(body, lambda n: whole_escapes(body[:n]), fits)
    if not length:
        return b""
    return whole_escapes(at_word_end(whole_escapes(body[:length]), (b"\\n", b" ")))


def at_word_end(part: bytes, ends: Sequence[bytes] = (b"\n", b" ")) -> bytes:
    """Up to the last end of a line or word near the cut; everything if there is none."""
    for end in ends:
        at = part.rfind(end, max(1, len(part) - _WORD_SEARCH))
        if at > 0:
            return part[: at + len(end)]
    return part


def cut_text(layout: Layout, fits: Fits) -> Cut:
    """Cut at the end of a line or row; cut inside the first one only if not even that fits."""
    kept = _most_kept(layout, fits)
    if kept:
        return Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
    # One line, the head of a table, or its tail is too long: cut at a word.
    return _text_prefix(layout.data, fits)


def _text_prefix(data: bytes, fits: Fits) -> Cut:
    length = _longest(data, lambda n: whole_characters(data[:n]), fits)
    part = at_word_end(whole_characters(data[: length or 0]))
    return Cut(part, len(part))
