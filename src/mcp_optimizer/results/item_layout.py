"""Divides a text into items (rows, elements or lines) and cuts it at one of them. Pure: the caller decides what fits.

Positions are in bytes (UTF-8). If not even one item fits, the text is cut at a word. Cut JSON is still JSON of the same
shape, and the pieces between the items' starts, concatenated, are the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcp_optimizer.largejson.spans import (
    ItemSpans,
    Positions,
    Structure,
    first_filled,
    items_of,
    key_of,
    position_type,
    value_start,
    whole_characters,
    whole_escapes,
)
from mcp_optimizer.results.fitting import Counted, Room
from mcp_optimizer.results.rows import LineTable, TextTable
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex

_DOMINATES = 0.5
"""The share of its container above which an item counts as the main content."""

_DEEPEST = 12
_ESCAPE = regex(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class ItemLayout:
    """The starts and ends of items in a text, and the start of the tail."""

    data: bytes
    unit: str
    starts: Positions
    ends: Positions
    tail: int
    in_object: bool = False

    @property
    def count(self) -> int:
        return len(self.starts)

    def shown_until(self, count: int) -> int:
        """How many bytes of the text the head and the first `count` items cover."""
        return int(self.starts[count]) if count < self.count else len(self.data)

    def kept(self, count: int) -> bytes:
        """The text with only the first items."""
        if count >= self.count:
            return self.data
        end = int(self.ends[count - 1]) if count else int(self.starts[0])
        return self.data[:end] + self.data[self.tail :]

    def bounds(self) -> Positions:
        """The start of each piece and the end of the last; head and tail belong to the outer pieces."""
        kind = position_type(self.data)
        return np.concatenate([np.zeros(1, kind), self.starts[1:], np.array([len(self.data)], kind)])

    @lazy
    def counted(self) -> Counted:
        """The items in the form in which `Room` counts them."""
        first = int(self.starts[0]) if self.count else self.tail

        def end(number: int) -> int:
            return int(self.ends[number - 1]) if number else first

        return Counted(
            self.data, self.count, end, self.kept, self.data[self.tail :], are_in_string=self.unit == "lines"
        )


def json_rows(data: bytes, path: Sequence[str]) -> ItemLayout | None:
    """The rows of the table at a path of keys."""
    at = first_filled(data, 0)
    structure = Structure(data)
    for key in path:
        items = structure.items_of(at)
        # If a key occurs twice, JSON parsers take the last.
        found = [] if items is None else [start for start in items.starts.tolist() if _has_key(data, start, key)]
        if not found:
            return None
        at = value_start(data, found[-1], in_object=True)
    items = structure.items_of(at)
    return None if items is None else _container(data, at, items, "rows")


def _has_key(data: bytes, start: int, key: str) -> bool:
    text = key_of(data, start)
    try:
        return bool(text) and json.loads(text) == key
    except ValueError:
        return False


def trunk(data: bytes) -> list[ItemLayout]:
    """The nested containers that hold most of a JSON text, innermost first."""
    layouts: list[ItemLayout] = []
    at, end = first_filled(data, 0), len(data)
    for _ in range(_DEEPEST):
        if data[at : at + 1] == b'"':
            layouts.append(_lines_in_string(data, at, end))
            break
        items = items_of(data, at)
        if items is None or not items.starts.size:
            break
        layout = _container(data, at, items, "keys" if data[at : at + 1] == b"{" else "items")
        layouts.append(layout)
        heaviest = int(np.argmax(layout.ends - layout.starts))
        start, end = int(layout.starts[heaviest]), int(layout.ends[heaviest])
        if end - start < (items.close - at) * _DOMINATES:
            break
        at = value_start(data, start, in_object=layout.in_object)
    return layouts[::-1]


def _container(data: bytes, at: int, items: ItemSpans, unit: str) -> ItemLayout:
    return ItemLayout(data, unit, items.starts, items.ends, items.close, in_object=data[at : at + 1] == b"{")


def _lines_in_string(data: bytes, at: int, end: int) -> ItemLayout:
    """The lines of a long string inside JSON; each ends after its escaped line break."""
    close = end
    while data[close - 1 : close] != b'"':
        close -= 1
    close -= 1
    ends = [match.end() for match in _ESCAPE.finditer(data, at + 1, close) if match.group(1) == b"n"]
    if not ends or ends[-1] != close:
        ends.append(close)
    stops = np.array(ends, dtype=np.int64)
    starts = np.concatenate([np.array([at + 1], dtype=np.int64), stops[:-1]])
    return ItemLayout(data, "lines", starts, stops, close)


def text_lines(data: bytes, table: LineTable | None = None) -> ItemLayout:
    """The lines of a text, or its rows if it is a table."""
    bounds = records(data, quoted=table is not None and table.form is TextTable.CSV)
    starts, ends = bounds[:-1], bounds[1:]
    if table is None or not table.row_count:
        return ItemLayout(data, "lines", starts, ends, len(data))
    if table.form is TextTable.JSON_LINES:
        rows = np.array([_is_filled(data, *span) for span in zip(starts, ends, strict=True)])
        starts, ends = starts[rows], ends[rows]
        return ItemLayout(data, "rows", starts, ends, int(ends[-1]))
    last = table.first + table.row_count
    if table.form is TextTable.CSV:
        # A CSV table goes to the end of the text, even if only some of its lines were examined.
        last = len(starts)
        while not _is_filled(data, starts[last - 1], ends[last - 1]):
            last -= 1
    return ItemLayout(data, "rows", starts[table.first : last], ends[table.first : last], int(ends[last - 1]))


def _is_filled(data: bytes, start: int, end: int) -> bool:
    return bool(data[start:end].strip())


def records(data: bytes, *, quoted: bool) -> Positions:
    """The start of each line and the end of the last. With quotes, a line break inside quotes does not end a line."""
    found: list[Positions] = []
    parity, kind = 0, position_type(data)
    for begin, chunk in _chunks(data):
        ends = np.flatnonzero(chunk == ord("\n"))
        if quoted:
            quotes = np.flatnonzero(chunk == ord('"'))
            ends = ends[(np.searchsorted(quotes, ends) + parity) % 2 == 0]
            parity = (parity + len(quotes)) % 2
        found.append((ends + begin + 1).astype(kind))
    if found and found[-1].size and found[-1][-1] == len(data):
        return np.concatenate([np.zeros(1, kind), *found])
    return np.concatenate([np.zeros(1, kind), *found, np.array([len(data)], kind)])


def _chunks(data: bytes, size: int = 1 << 20) -> Iterator[tuple[int, np.ndarray]]:
    for begin in range(0, len(data), size):
        yield begin, np.frombuffer(data, dtype=np.uint8, count=min(size, len(data) - begin), offset=begin)


Fits = Callable[[bytes], bool]
"""Whether a text fits. A `Room` also finds how much of a text fits with few attempts."""

_WORD_SEARCH = 200
"""Bytes before a cut that are searched for the end of a line or word."""

_CLOSE_ENOUGH = 50

_PLAIN = 4_096
"""Bytes up to which an item counts as plain. A plain item is shown completely or not at all."""


@dataclass(frozen=True)
class Cut:
    """A text after cutting, and how many bytes from the start of the original it shows completely."""

    data: bytes
    shown_until: int
    layout: ItemLayout | None = None
    items: int = 0
    """How many of the layout's items remain complete."""


def most(count: int, fits: Callable[[int], bool]) -> int | None:
    """Approximately the largest number up to `count` that fits, searched from below; None if not even 0 fits.

    From below, because a text that is far too large takes long to measure. Approximately, because the last few of many
    items are not worth many measurements.
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


def _most_kept(layout: ItemLayout, fits: Fits) -> int | None:
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


def cut_json(data: bytes, fits: Fits, rows: ItemLayout | None = None) -> Cut:
    """Cut the rows or the largest container; if that is not enough, a container around it; cut inside an item that is
    too large on its own.
    """
    for layout in _to_cut(data, rows):
        kept = _most_kept(layout, fits)
        if kept is not None:
            whole = Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
            next_size = int(layout.ends[kept] - layout.starts[kept]) if kept < layout.count else 0
            # Half a plain row is useless, so none of it is shown; part of a large branch is better than almost nothing.
            is_branch = next_size > max(len(whole.data), _PLAIN)
            return (_with_part_of(layout, kept, fits) if not kept or is_branch else None) or whole
    at = first_filled(data, 0)
    opening = data[at : at + 1]
    if opening == b'"':
        return Cut(b'"' + _string_prefix(data[at:].rstrip()[1:-1], _between(fits, b'"', b'"')) + b'"', 0)
    return Cut({b"{": b"{}", b"[": b"[]"}.get(opening, b"null"), 0)


def _to_cut(data: bytes, rows: ItemLayout | None) -> Iterator[ItemLayout]:
    if rows is not None:
        yield rows
    yield from trunk(data)


def _with_part_of(layout: ItemLayout, number: int, fits: Fits) -> Cut | None:
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
    """The longest beginning of a JSON string's content that fits."""
    length = _longest(body, lambda n: whole_escapes(body[:n]), fits)
    if not length:
        return b""
    return whole_escapes(at_word_end(whole_escapes(body[:length]), (b"\\n", b" ")))


def at_word_end(part: bytes, ends: Sequence[bytes] = (b"\n", b" ")) -> bytes:
    """The part up to the last end of a line or word near the cut; all of it if there is none."""
    for end in ends:
        at = part.rfind(end, max(1, len(part) - _WORD_SEARCH))
        if at > 0:
            return part[: at + len(end)]
    return part


def cut_text(layout: ItemLayout, fits: Fits) -> Cut:
    """Cut at the end of a line or row; cut inside the first only if it does not fit completely."""
    kept = _most_kept(layout, fits)
    if kept:
        return Cut(layout.kept(kept), layout.shown_until(kept), layout, kept)
    # The first line, or the head or tail of a table, is too long: cut at a word.
    return _text_prefix(layout.data, fits)


def _text_prefix(data: bytes, fits: Fits) -> Cut:
    length = _longest(data, lambda n: whole_characters(data[:n]), fits)
    part = at_word_end(whole_characters(data[: length or 0]))
    return Cut(part, len(part))
