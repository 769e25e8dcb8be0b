"""Divides a complete result into numbered pieces by its rows, elements or lines, and chooses as many pieces as fit a
page.

The pieces are the rows, elements or lines of the texts as their server sent them, so all pieces concatenated are the
original, byte for byte. A piece too large for a page is divided further. Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.domain.kept_results import Chunk
from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.largejson.spans import Positions, first_filled, whole_characters
from mcp_optimizer.results.encodings import minified
from mcp_optimizer.results.fitting import Room
from mcp_optimizer.results.item_layout import (
    Cut,
    Fits,
    ItemLayout,
    at_word_end,
    cut_json,
    cut_text,
    json_rows,
    most,
    records,
    text_lines,
    trunk,
)
from mcp_optimizer.results.result_texts import NO_JSON, PARSED, Text, decoded, encoded, json_value
from mcp_optimizer.results.rows import Path, columns_of, find_table, find_text_table, first_rows
from mcp_optimizer.results.tool_limits import objects_in
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np

# Prepares one text of a result for cutting and paging: its bytes, its items, its table. A text of up to a megabyte is
# parsed to find the table; of a larger one, only the first rows.

_FIRST_ROWS = 20
_FIRST_LINES = 2_000
_LOOKED_AT = 1 << 22
_OUTER, _ENDS, _SMALL = 3, 32, 2_000
"""Limits for a large text: objects read around its rows, keys read at each end of an object, bytes of such a key's
value.
"""


@dataclass(frozen=True)
class _Division:
    """How a text is divided into items."""

    layout: ItemLayout
    is_json: bool
    row_count: int | None = None
    column_count: int | None = None
    path: Path | None = None
    """The keys that lead to the rows, if the complete text was parsed."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """The small values of the objects around the rows, if the text was not parsed completely."""


@dataclass(frozen=True)
class ResultDocument:
    """A text and its division, computed on first use. `value` is the parsed JSON, if already known."""

    data: bytes
    value: Any = NO_JSON

    @lazy
    def _division(self) -> _Division:
        data = self.data
        at = first_filled(data, 0)
        if data[at : at + 1] in (b"{", b"["):
            found = _large_json(data) if len(data) > PARSED else _small_json(data, self.value)
            if found is not None:
                return found
        return _text(data)

    @property
    def layout(self) -> ItemLayout:
        return self._division.layout

    @property
    def is_json(self) -> bool:
        return self._division.is_json

    @property
    def row_count(self) -> int | None:
        return self._division.row_count

    @property
    def column_count(self) -> int | None:
        return self._division.column_count

    @property
    def objects(self) -> tuple[Mapping[str, Any], ...]:
        """The objects that may say whether there are more rows."""
        return self._division.objects or tuple(objects_in(self.value))

    def cut(self, fits: Fits, max_rows: int = 0) -> Cut:
        """Cut to the part that fits, with at most `max_rows` rows (0 means no limit)."""
        if not max_rows or self.row_count is None or self.row_count <= max_rows:
            return self._cut(fits)
        whole = Cut(self.layout.kept(max_rows), self.layout.shown_until(max_rows), self.layout, max_rows)
        is_exceeded = isinstance(fits, Room) and fits.is_exceeded(self.layout.counted.first(max_rows))
        return whole if not is_exceeded and fits(whole.data) else self._cut(fits)

    def value_of(self, cut: Cut) -> Any:
        """The JSON value of a cut text; NO_JSON if it must be parsed, because more than complete rows was removed."""
        path = self._division.path
        if path is None or self.value is NO_JSON or cut.layout is not self.layout:
            return NO_JSON
        return first_rows(self.value, path, cut.items) if cut.data == self.layout.kept(cut.items) else NO_JSON

    def _cut(self, fits: Fits) -> Cut:
        if not self.is_json:
            return cut_text(self.layout, fits)
        return cut_json(self.data, fits, self.layout if self.row_count else None)


def read_document(text: Text, value: Any = NO_JSON) -> ResultDocument:
    """Make the document for a text. `value` is the parsed JSON, if already known."""
    return ResultDocument(text.utf8 if isinstance(text, LargeText) else encoded(text), value)


def _small_json(data: bytes, value: Any) -> _Division | None:
    value = json_value(decoded(data)) if value is NO_JSON else value
    if value is NO_JSON:
        return None
    table = find_table(value)
    rows = json_rows(data, table.path) if table is not None else None
    if table is not None and rows is not None:
        return _Division(rows, True, table.row_count, table.column_count, table.path)
    layouts = trunk(data)
    return _Division(layouts[0], True) if layouts else _text(data)


def _large_json(data: bytes) -> _Division | None:
    """Treat a text as JSON if it opens and closes like JSON, and divide its largest container."""
    layouts = trunk(data)
    if not layouts or first_filled(data, layouts[-1].tail + 1) < len(data):
        return None
    # The innermost container whose first elements look like rows.
    for layout in layouts:
        if layout.unit == "items" and (columns := _first_columns(layout)) is not None:
            rows = ItemLayout(data, "rows", *_spans(layout))
            return _Division(rows, True, layout.count, columns, objects=_small_objects(layouts))
    return _Division(layouts[0], True, objects=_small_objects(layouts))


def _small_objects(layouts: Sequence[ItemLayout]) -> tuple[Mapping[str, Any], ...]:
    """The outer objects of a large text with their small values, which may say whether there are more rows."""
    outer = [layout for layout in layouts[::-1] if layout.in_object][:_OUTER]
    return tuple(each for layout in outer for each in objects_in(_small_values(layout)))


def _small_values(layout: ItemLayout) -> dict[str, Any]:
    values: dict[str, Any] = {}
    last = max(layout.count - _ENDS, _ENDS)
    for number in (*range(min(_ENDS, layout.count)), *range(last, layout.count)):
        start, end = int(layout.starts[number]), int(layout.ends[number])
        if end - start <= _SMALL:
            with suppress(ValueError, RecursionError):
                values |= json.loads(b"{%b}" % layout.data[start:end].strip(b" \t\r\n,"))
    return values


def _spans(layout: ItemLayout) -> tuple[Any, Any, int]:
    return layout.starts, layout.ends, layout.tail


def _first_columns(layout: ItemLayout) -> int | None:
    spans = zip(layout.starts[:_FIRST_ROWS].tolist(), layout.ends[:_FIRST_ROWS].tolist(), strict=True)
    try:
        return columns_of([json.loads(layout.data[start:end]) for start, end in spans])
    except ValueError:
        return None


def _text(data: bytes) -> _Division:
    table = find_text_table(_first_lines(data))
    if table is None:
        return _Division(text_lines(data), False)
    layout = text_lines(data, table)
    return _Division(layout, False, layout.count, table.column_count)


def _first_lines(data: bytes) -> list[str]:
    bounds = records(data[:_LOOKED_AT], quoted=False)[: _FIRST_LINES + 1].tolist()
    if len(data) > _LOOKED_AT and bounds[-1] == _LOOKED_AT:
        # The last row may continue, and may end inside a character.
        bounds.pop()
    lines = decoded(data[: bounds[-1]]).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


_CHUNK = 256 * 1024
"""Approximate bytes of text stored together."""

_BLANKS = b" \t\r\n"

REMARK = -2
"""The block number of a remark."""

_MEASURED = 200
"""Maximum large pieces that are measured exactly before they are divided; if there are more, only length decides."""

_COMPRESSION = 1
"""The fastest level, because stored results are read once or never."""


def packed(block: int, first: int, data: bytes, lengths: Positions) -> Chunk:
    return Chunk(block, first, lengths.astype("<u4").tobytes(), zlib.compress(data, _COMPRESSION))


def unpacked(chunk: Chunk) -> list[bytes]:
    """The pieces of a stored chunk."""
    ends = np.cumsum(np.frombuffer(chunk.lengths, dtype="<u4"), dtype=np.int64).tolist()
    data = zlib.decompress(chunk.body)
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Pieces:
    """The texts of a result and where each piece in them starts."""

    unit: str
    texts: tuple[bytes, ...]
    bounds: tuple[Positions, ...]
    blocks: tuple[int, ...]
    remark: str = ""
    """What a reader has to know about the result; stored after its last piece, where no page begins."""

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(map(len, self.texts))

    @property
    def count(self) -> int:
        return sum(len(bounds) - 1 for bounds in self.bounds)

    def after(self, text: int, position: int) -> int:
        """The number of the first piece that ends after a position in one of the texts."""
        before = sum(len(bounds) - 1 for bounds in self.bounds[:text])
        return before + int(np.searchsorted(self.bounds[text][1:], position, side="right"))

    def chunks(self) -> Iterator[Chunk]:
        """All pieces, as stored."""
        first = 0
        for block, data, bounds in zip(self.blocks, self.texts, self.bounds, strict=True):
            at = 0
            while at < len(bounds) - 1:
                end = int(np.searchsorted(bounds, bounds[at] + _CHUNK, side="right")) - 1
                end = min(max(end, at + 1), len(bounds) - 1)
                part = data[int(bounds[at]) : int(bounds[end])]
                yield packed(block, first + at, part, np.diff(bounds[at : end + 1]))
                at = end
            first += at
        if self.remark:
            remark = self.remark.encode()
            yield packed(REMARK, first, remark, np.array([len(remark)]))


def divide(documents: Sequence[tuple[int, ResultDocument]], budget: int, count: Callable[[bytes], int]) -> Pieces:
    """Divide texts, each with the number of its content block, into pieces that fit a page."""
    is_one = len(documents) == 1
    unit = documents[0][1].layout.unit if is_one else "blocks"
    bounds = []
    for _, document in documents:
        if not is_one and len(document.data) <= budget:
            # Each of several texts is a piece, unless it is too large.
            bounds.append(np.array([0, len(document.data)], dtype=np.int64))
            continue
        wanted = document.layout.bounds()
        divided = _divided(document.data, wanted, budget, count)
        unit = unit if len(divided) == len(wanted) and (is_one or len(wanted) == 2) else "parts"
        bounds.append(divided)
    texts = tuple(document.data for _, document in documents)
    return Pieces(unit, texts, tuple(bounds), tuple(block for block, _ in documents))


def _divided(data: bytes, bounds: Positions, budget: int, count: Callable[[bytes], int]) -> Positions:
    """The bounds, with additional ones inside pieces that are too large. No text has more tokens than bytes."""
    large = np.flatnonzero(np.diff(bounds) > budget)
    if len(large) <= _MEASURED:
        large = np.array(
            [at for at in large.tolist() if _is_too_large(data, bounds, at, budget, count)], dtype=np.int64
        )
    if not large.size:
        return bounds
    more: list[int] = []
    for at in large.tolist():
        start, end = int(bounds[at]), int(bounds[at + 1])
        while end - start > budget:
            part = at_word_end(whole_characters(data[start : start + budget])) or data[start : start + budget]
            start += len(part)
            more.append(start)
    return np.unique(np.concatenate([bounds, np.array(more, dtype=np.int64)]))


def _is_too_large(data: bytes, bounds: Positions, at: int, budget: int, count: Callable[[bytes], int]) -> bool:
    piece = data[int(bounds[at]) : int(bounds[at + 1])]
    return len(piece) > budget * 8 or count(piece) > budget


@dataclass(frozen=True)
class Page:
    """Consecutive pieces, joined by content block."""

    texts: tuple[tuple[int, bytes], ...]
    first: int
    count: int


def page(pieces: Sequence[tuple[int, bytes]], first: int, fits: Callable[[Sequence[bytes]], bool]) -> Page:
    """Join as many of the pieces (block and text) as fit, at least one."""
    count = most(len(pieces), lambda n: n == 0 or fits([text for _, text in joined(pieces[:n])])) or 1
    return Page(tuple(joined(pieces[:count])), first, min(count, len(pieces)))


def without_blanks(piece: bytes) -> bytes:
    """A row, element or key of JSON without whitespace between its tokens, as the first part of a result is shown; any
    other piece as it is. What follows it, a comma or a line break, stays.
    """
    text = piece.strip(_BLANKS)
    body, comma = (text[:-1].rstrip(_BLANKS), b",") if text.endswith(b",") else (text, b"")
    if not body.startswith((b"{", b"[", b'"')) or not _is_json(body):
        return piece
    ending = comma or (b"\n" if piece.endswith(b"\n") else b"")
    return minified(body) + ending


def _is_json(body: bytes) -> bool:
    try:
        json.loads(b"{%b}" % body if body.startswith(b'"') else body)
    except (ValueError, RecursionError):
        return False
    return True


def joined(pieces: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Join adjacent pieces of the same block."""
    found: list[tuple[int, list[bytes]]] = []
    for block, text in pieces:
        if found and found[-1][0] == block:
            found[-1][1].append(text)
        else:
            found.append((block, [text]))
    return [(block, b"".join(texts)) for block, texts in found]
