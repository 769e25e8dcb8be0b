"""Writes a result in fewer tokens: JSON without whitespace, and flat tables as CSV or TOON. Pure.

Removing whitespace changes no number, escape or key. CSV and TOON are opt-in and are used only where they take fewer
tokens than the JSON. `Minifier` minifies each part of a long text only once, however often that part is measured.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.largejson.spans import BLANKS, in_strings, quotes_of
from mcp_optimizer.results.result_texts import NO_JSON, compact, json_value
from mcp_optimizer.results.rows import COLUMN_KEYS, find_table
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex


class Encoding(StrEnum):
    """How the text of a JSON result is sent."""

    COMPACT = "compact"
    ORIGINAL = "original"
    CSV = "csv"
    TOON = "toon"


_BLANKS = b" \t\r\n"
_NO_BLANKS = regex(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^ \t\r\n"]+', re.DOTALL)


def minified(data: bytes) -> bytes:
    """JSON without whitespace between tokens; everything else unchanged."""
    if len(data) > _LARGE:
        return _Begun(data, _LARGE_WINDOW).between(0, len(data))
    if b'\\"' in data or data.count(b'"') % 2:
        return b"".join(_NO_BLANKS.findall(data))
    # Without escaped quotes, every second part between quotes is a string; this is several times faster.
    parts = data.split(b'"')
    parts[::2] = b'"'.join(parts[::2]).translate(None, _BLANKS).split(b'"')
    return b'"'.join(parts)


@dataclass(frozen=True)
class FlatTable:
    """A table of plain values, and the fields around it."""

    key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    around: Mapping[str, Any]


def flat_table(value: Any) -> FlatTable | None:
    """The table in a JSON value, if its cells and the fields around it are plain values."""
    table = find_table(value)
    if table is None or not table.row_count or len(table.path) > 1:
        return None
    key = table.path[0] if table.path else ""
    rows = value[key] if key else value
    around = {name: other for name, other in value.items() if name != key} if key else {}
    if all(isinstance(row, Mapping) for row in rows):
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        # A missing cell must not become an empty one.
        if any(len(row) != len(columns) for row in rows):
            return None
        cells = tuple(tuple(row[name] for name in columns) for row in rows)
    else:
        names = next((name for name in COLUMN_KEYS if name in around), None)
        columns = tuple(map(str, around.pop(names))) if names is not None else ()
        if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
            return None
        cells = tuple(map(tuple, rows))
    if (
        not columns
        or not all(map(_is_plain, around.values()))
        or not all(_is_plain(cell) for row in cells for cell in row)
    ):
        return None
    return FlatTable(key, columns, cells, around)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def smaller(text: str, value: Any, encoding: Encoding, count: Callable[[str], int]) -> str:
    """The text in the requested encoding, if it is a flat table and takes fewer tokens; otherwise unchanged."""
    write = {Encoding.CSV: as_csv, Encoding.TOON: as_toon}.get(encoding)
    table = flat_table(value) if write is not None else None
    if write is None or table is None:
        return text
    written = write(table)
    return written if count(written) < count(text) else text


def in_encoding(result: Mapping[str, Any], encoding: Encoding, count: Callable[[str], int]) -> dict[str, Any]:
    """A result with its first text in the requested encoding, where that is smaller."""
    at = next((number for number, block in enumerate(result["content"]) if _is_text(block)), None)
    value = NO_JSON if at is None else json_value(result["content"][at]["text"])
    if at is None or value is NO_JSON:
        return dict(result)
    block = result["content"][at]
    written = {**block, "text": smaller(block["text"], value, encoding, count)}
    return {**result, "content": [*result["content"][:at], written, *result["content"][at + 1 :]]}


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def as_csv(table: FlatTable) -> str:
    """CSV with a header. Fields around the table come first, as a line of JSON."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        lines.write(",".join(map(_csv_cell, row)) + "\n")
    head = f"{compact(dict(table.around))}\n\n" if table.around else ""
    return head + lines.getvalue()


_SPECIAL_IN_CSV = regex(r'[",\r\n]|^\s|\s$')
_READS_AS_ANOTHER = regex(r"(true|false|null|[-+]?[\d.].*)?$")


def _csv_cell(value: Any) -> str:
    """Quote text that would otherwise read as another type: an empty cell is null, "" is an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    if _SPECIAL_IN_CSV.search(value) or _READS_AS_ANOTHER.match(value):
        return '"' + value.replace('"', '""') + '"'
    return value


def as_toon(table: FlatTable) -> str:
    """TOON (token-oriented object notation): fields as `key: value`, then the table, its length and columns once."""
    fields = [f"{_toon_key(name)}: {_toon_cell(value)}" for name, value in table.around.items()]
    columns = ",".join(map(_toon_key, table.columns))
    head = f"{_toon_key(table.key) if table.key else ''}[{len(table.rows)}]{{{columns}}}:"
    rows = ["  " + ",".join(map(_toon_cell, row)) for row in table.rows]
    return "\n".join([*fields, head, *rows])


_TOON_NAME = regex(r"[A-Za-z_][\w.]*$")
_SPECIAL_IN_TOON = regex(r'[:"\\{}\[\],\x00-\x1f]|^\s|\s$|^-')


def _toon_key(name: str) -> str:
    return name if _TOON_NAME.match(name) else json.dumps(name, ensure_ascii=False)


def _toon_cell(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _SPECIAL_IN_TOON.search(value) or _READS_AS_ANOTHER.match(value):
        return json.dumps(value, ensure_ascii=False)
    return value


_IS_FILLED = bytes(byte not in BLANKS for byte in range(256))

_WINDOW = 32 * 1024
"""Bytes minified at once. Most of a large result is cut off, so it is not minified completely."""

_SHORT = 2_048
"""Bytes up to which `minified` is faster than numpy."""

_LARGE, _LARGE_WINDOW = 32 * 1024, 256 * 1024
"""Bytes above which a complete text is minified with numpy, in a quarter of the time, and how much of it at once."""


class Minifier:
    """Returns a JSON text without whitespace between tokens, remembering what it has minified.

    Lives as long as the work on one result.
    """

    def __init__(self, window: int = _WINDOW) -> None:
        self._window = window
        self._written: dict[bytes, bytes] = {}
        self._begun: dict[bytes, _Begun] = {}

    def __call__(self, data: bytes) -> bytes:
        found = self._written.get(data)
        if found is None:
            is_short = len(data) <= min(_SHORT, self._window)
            found = minified(data) if is_short else _Begun(data, self._window).between(0, len(data))
            self._written[data] = found
        return found

    def between(self, data: bytes, start: int, end: int) -> bytes:
        """The part of a text between two positions outside strings, without whitespace."""
        begun = self._begun.get(data)
        if begun is None:
            begun = self._begun[data] = _Begun(data, self._window)
        return begun.between(start, end)


class _Begun:
    """A text whose first windows have been minified."""

    def __init__(self, data: bytes, window: int) -> None:
        self._data = data
        self._window = window
        self._text = bytearray()
        self._ends_inside = self._is_escaped = False
        self._windows: list[tuple[int, np.ndarray]] = []
        """For each window: its start in the minified text, and the positions of the whitespace in it."""

    def between(self, start: int, end: int) -> bytes:
        while len(self._windows) * self._window < min(end, len(self._data)):
            self._write()
        return bytes(self._text[self._place(start) : self._place(end)])

    def _place(self, position: int) -> int:
        """The position in the minified text of a position in the original."""
        number, inside = divmod(position, self._window)
        if number >= len(self._windows):
            return len(self._text)
        begin, blanks = self._windows[number]
        return begin + inside - int(blanks.searchsorted(inside))

    def _write(self) -> None:
        at = len(self._windows) * self._window
        part = self._data[at : at + self._window]
        codes = np.frombuffer(part, dtype=np.uint8)
        is_quote, self._is_escaped = quotes_of(codes, self._is_escaped)
        is_kept = in_strings(is_quote, self._ends_inside)
        self._ends_inside = bool(is_kept[-1])
        # A closing quote is kept too, because it is not blank.
        is_kept |= np.frombuffer(part.translate(_IS_FILLED), dtype=np.bool_)
        self._windows.append((len(self._text), np.flatnonzero(~is_kept)))
        self._text += codes[is_kept].tobytes()
