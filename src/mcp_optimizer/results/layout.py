"""How a text is divided into items: rows, elements or lines, with a head and a tail.

Positions are in bytes (UTF-8). `kept(n)` is the text with only its first n items; JSON stays JSON of the same shape.
The pieces between the items' starts, concatenated, are the text again, byte for byte. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcp_optimizer.largejson.spans import (
    Items,
    Positions,
    Structure,
    first_filled,
    items_of,
    key_of,
    position_type,
    value_start,
)
from mcp_optimizer.results.room import Counted
from mcp_optimizer.results.rows import LineTable, TextTable
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np

_DOMINATES = 0.5
"""Share of its container above which an item counts as the main content."""

_DEEPEST = 12
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Layout:
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
        """How much of the text the head and the first items cover."""
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
        """The items, to be counted one after the other."""
        first = int(self.starts[0]) if self.count else self.tail

        def end(number: int) -> int:
            return int(self.ends[number - 1]) if number else first

        return Counted(
            self.data, self.count, end, self.kept, self.data[self.tail :], are_in_string=self.unit == "lines"
        )


def json_rows(data: bytes, path: Sequence[str]) -> Layout | None:
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


def trunk(data: bytes) -> list[Layout]:
    """The nested containers that hold most of a JSON text, innermost first."""
    layouts: list[Layout] = []
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


def _container(data: bytes, at: int, items: Items, unit: str) -> Layout:
    return Layout(data, unit, items.starts, items.ends, items.close, in_object=data[at : at + 1] == b"{")


def _lines_in_string(data: bytes, at: int, end: int) -> Layout:
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
    return Layout(data, "lines", starts, stops, close)


def text_lines(data: bytes, table: LineTable | None = None) -> Layout:
    """The lines of a text, or its rows if it is a table."""
    bounds = records(data, quoted=table is not None and table.form is TextTable.CSV)
    starts, ends = bounds[:-1], bounds[1:]
    if table is None or not table.row_count:
        return Layout(data, "lines", starts, ends, len(data))
    if table.form is TextTable.JSON_LINES:
        rows = np.array([_is_filled(data, *span) for span in zip(starts, ends, strict=True)])
        starts, ends = starts[rows], ends[rows]
        return Layout(data, "rows", starts, ends, int(ends[-1]))
    last = table.first + table.row_count
    if table.form is TextTable.CSV:
        # To the end, even if only some of its lines were examined.
        last = len(starts)
        while not _is_filled(data, starts[last - 1], ends[last - 1]):
            last -= 1
    return Layout(data, "rows", starts[table.first : last], ends[table.first : last], int(ends[last - 1]))


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
