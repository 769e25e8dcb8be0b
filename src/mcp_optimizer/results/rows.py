"""Finds the table in a result: in a JSON value, or in text as CSV, a Markdown table or JSON lines.

Pure. Reports the position and number of rows and the number of columns; changes nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from mcp_optimizer.runtime.patterns import regex

Path = tuple[str, ...]

ENVELOPES = (
    *("items", "results", "data", "rows", "records", "entries", "values", "result", "hits", "nodes", "edges"),
    *("list", "content", "objects", "documents", "elements", "matches"),
)
"""Keys under which an envelope holds the rows, most likely first."""

COLUMN_KEYS = ("columns", "columnNames", "column_names", "fields", "headers", "header")
ROW_KEYS = ("rows", "data", "values", "records", "results")

_LOOKED_AT = 200
"""Rows whose columns are examined; a table may have a million rows."""


class TextTable(StrEnum):
    """How a table is written in plain text."""

    CSV = "csv"
    MARKDOWN = "markdown"
    JSON_LINES = "json_lines"


@dataclass(frozen=True)
class Table:
    """A table in a JSON value: the keys that lead to its rows."""

    path: Path
    row_count: int
    column_count: int | None


@dataclass(frozen=True)
class LineTable:
    """A table in a text: the numbers of the lines (for CSV: records) that are rows, from 0."""

    form: TextTable
    first: int
    row_count: int
    column_count: int
    delimiter: str = ","


_OBJECT = (dict, Mapping)
"""`dict` first: checking for `Mapping` takes ten times as long."""


def find_table(value: Any) -> Table | None:
    """The table in a JSON value: itself, or one level down."""
    if (table := _direct(value, ())) is not None:
        return table
    if not isinstance(value, Mapping):
        return None
    named = [key for key in ENVELOPES if key in value]
    for key in named:
        if (table := _direct(value[key], (key,))) is not None and table.row_count:
            return table
    others = [key for key in value if key not in ENVELOPES]
    found = [table for key in others if (table := _direct(value[key], (key,))) is not None and table.row_count]
    if found:
        return max(found, key=lambda table: table.row_count)
    empty = [key for key in named if value[key] == []]
    return Table((empty[0],), 0, None) if empty else None


def _direct(value: Any, path: Path) -> Table | None:
    if isinstance(value, list):
        columns = columns_of(value)
        return None if columns is None and value else Table(path, len(value), columns)
    if not isinstance(value, Mapping):
        return None
    columns = next((value[key] for key in COLUMN_KEYS if isinstance(value.get(key), list)), None)
    if columns is None:
        return None
    for key in ROW_KEYS:
        rows = value.get(key)
        if isinstance(rows, list) and all(isinstance(row, list | dict) for row in rows[:_LOOKED_AT]):
            return Table((*path, key), len(rows), len(columns))
    return None


def first_rows(value: Any, path: Path, count: int) -> Any:
    """The same JSON value with only the first rows of the table at a path."""
    if not path:
        return value[:count]
    return {**value, path[0]: first_rows(value[path[0]], path[1:], count)}


def columns_of(rows: Sequence[Any]) -> int | None:
    """The number of columns of these rows; None if they are not rows."""
    some = rows[:_LOOKED_AT]
    if not some:
        return None
    if all(isinstance(row, _OBJECT) for row in some):
        return len({key for row in some for key in row})
    if all(isinstance(row, list) for row in some):
        widths = {len(row) for row in some}
        return widths.pop() if len(widths) == 1 else None
    return None


_DELIMITERS = (",", "\t", ";")

_TELLING = 3
"""Records at which a text is judged as if there were more."""


def find_text_table(lines: Sequence[str]) -> LineTable | None:
    """The table in a text, given as lines; for CSV, records are counted."""
    if len(lines) < 2:
        return None
    return _json_lines(lines) or _markdown(lines) or (_csv(lines) if _may_be_csv(lines[0]) else None)


def may_have_table(text: str) -> bool:
    """Whether a text may be a table, as far as can be told without dividing it into lines."""
    return text.lstrip()[:1] == "{" or "--" in text or _may_be_csv(text[: text.find("\n") + 1])


def _may_be_csv(first: str) -> bool:
    """Whether a first line may be a header: it has a delimiter, or a quote that a later line closes."""
    return any(mark in first for mark in (*_DELIMITERS, '"'))


def csv_records(lines: Sequence[str]) -> list[str]:
    """The records of a CSV text: its lines, joined where a quote stays open."""
    if not any('"' in line for line in lines):
        return list(lines)
    found: list[str] = []
    is_open = False
    for line in lines:
        if is_open:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
        is_open ^= line.count('"') % 2 == 1
    return found


def _json_lines(lines: Sequence[str]) -> LineTable | None:
    first = next((line for line in lines if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return None
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2 or not all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in filled):
        return None
    try:
        rows = [json.loads(line) for line in filled[:_LOOKED_AT]]
    except ValueError:
        return None
    return LineTable(TextTable.JSON_LINES, 0, len(filled), columns_of(rows) or 0)


_RULE = regex(r"\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)+\|?\s*$")


def _markdown(lines: Sequence[str]) -> LineTable | None:
    """The longest Markdown table."""
    best: LineTable | None = None
    for at in (number for number, line in enumerate(lines) if number and "--" in line and _RULE.match(line)):
        columns = len(_cells(lines[at]))
        if len(_cells(lines[at - 1])) != columns:
            continue
        rows = sum(1 for _ in _while_row(islice(lines, at + 1, None)))
        if best is None or rows > best.row_count:
            best = LineTable(TextTable.MARKDOWN, at + 1, rows, columns)
    return best


def _while_row(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if "|" not in line:
            return
        yield line


def _cells(line: str) -> list[str]:
    return line.strip().strip("|").split("|")


def _csv(lines: Sequence[str]) -> LineTable | None:
    if len(lines) > _LOOKED_AT:
        # Most texts are no CSV, which their first records show; joining the lines of a large one takes long.
        first = csv_records(lines[:_LOOKED_AT])[:-1]
        if len(first) >= _TELLING and _csv_of(first) is None:
            return None
    return _csv_of(csv_records(lines))


def _csv_of(records: Sequence[str]) -> LineTable | None:
    while records and not records[-1].strip():
        records = records[:-1]
    if len(records) < 2:
        return None
    for delimiter in _DELIMITERS:
        if delimiter not in records[0]:
            continue
        try:
            head, *rows = csv.reader(records[:_LOOKED_AT], delimiter=delimiter)
        except (csv.Error, ValueError):
            continue
        if not _is_header(head) or (len(records) == 2 and len(head) < 3):
            continue
        if all(len(row) == len(head) for row in rows):
            return LineTable(TextTable.CSV, 1, len(records) - 1, len(head), delimiter)
    return None


def _is_header(cells: Sequence[str]) -> bool:
    """Whether the cells are at least two names, each short, all different, none a number or part of a sentence."""
    names = [cell.strip() for cell in cells]
    return (
        len(names) >= 2
        and len(set(names)) == len(names)
        and all(0 < len(name) <= 60 and len(name.split()) <= 4 and not _NUMBER.match(name) for name in names)
    )


_NUMBER = regex(r"[-+]?[\d.,]+$")
