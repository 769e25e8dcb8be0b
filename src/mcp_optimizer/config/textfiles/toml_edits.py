"""Sets and removes values in the text of a TOML file: tables with their own header, and single keys.

Called by `editing`, which checks the results. A table is added at the end as one block; a single key is added to the
nearest existing table, with dotted keys for missing levels. Items of a list are `[[name]]` tables, or written in
brackets.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from mcp_optimizer.config.textfiles.json_text import first_visible
from mcp_optimizer.config.textfiles.kinds import BOM, CannotEdit, line_end
from mcp_optimizer.runtime.patterns import regex

_TOKEN = regex(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}=]', re.DOTALL
)
_BARE = regex(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Statement:
    """A header or a key with its value; covers whole lines, from `start` to `end`."""

    start: int
    end: int
    path: tuple[str, ...]
    is_header: bool
    value_start: int = 0
    value_end: int = 0
    is_item: bool = False
    """Whether it is the header of a list item."""


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    mark, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    statements, wanted = list(_statements(body)), tuple(path)
    exact = next((one for one in statements if not one.is_header and one.path == wanted), None)
    if exact is not None:
        return mark + body[: exact.value_start] + _inline(value) + body[exact.value_end :]
    block = [one for one in statements if one.path[: len(wanted)] == wanted]
    if block:
        if not block[0].is_header or not isinstance(value, Mapping):
            raise CannotEdit(f"{_dotted(wanted)} is written as dotted keys or as a table; edit it by hand")
        return mark + _replaced(body, block, _table(wanted, value, line_end(body)))
    inside = next((one for one in statements if not one.is_header and wanted[: len(one.path)] == one.path), None)
    if inside is not None:
        raise CannotEdit(f"{_dotted(inside.path)} is an inline table; write it as [{_dotted(inside.path)}] first")
    if isinstance(value, Mapping):
        return mark + _with_block(body, _table(wanted, value, line_end(body)))
    return mark + _with_key(body, statements, wanted, value)


def without_value(text: str, path: Sequence[str]) -> list[str]:
    mark, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    wanted = tuple(path)
    found = [one for one in _statements(body) if one.path[: len(wanted)] == wanted]
    if not found:
        raise CannotEdit(f"{_dotted(wanted)} is part of an inline table; edit it by hand")
    return [mark + _without(body, found)]


def with_item(text: str, path: Sequence[str], item: Any, *, first: bool) -> str:
    mark, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    statements, wanted = list(_statements(body)), tuple(path)
    exact = next((one for one in statements if not one.is_header and one.path == wanted), None)
    if exact is not None:
        there = _in_brackets(body, exact)
        items = [item, *there] if first else [*there, item]
        return mark + body[: exact.value_start] + _inline(items) + body[exact.value_end :]
    if not isinstance(item, Mapping):
        raise CannotEdit(f"{_dotted(wanted)} is a list of tables")
    end = line_end(body)
    block = _table(wanted, item, end).replace("[", "[[", 1).replace("]", "]]", 1)
    headers = [one for one in statements if one.is_item and one.path == wanted]
    if first and headers:
        at = headers[0].start
        return mark + body[:at] + block + end + body[at:]
    return mark + _with_block(body, block)


def without_item(text: str, path: Sequence[str], index: int) -> list[str]:
    mark, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    statements, wanted = list(_statements(body)), tuple(path)
    exact = next((one for one in statements if not one.is_header and one.path == wanted), None)
    if exact is not None:
        items = _in_brackets(body, exact)
        return [
            mark + body[: exact.value_start] + _inline(items[:index] + items[index + 1 :]) + body[exact.value_end :]
        ]
    headers = [one for one in statements if one.is_item and one.path == wanted]
    start = headers[index].start
    # Up to the next item, or to a table outside this one.
    ends = (one.start for one in statements if one.is_header and (one in headers or one.path[: len(wanted)] != wanted))
    stop = min((end for end in ends if end > start), default=len(body))
    return [mark + _without(body, [one for one in statements if start <= one.start < stop])]


def _in_brackets(body: str, found: Statement) -> list[Any]:
    """The items of a list in brackets. Raises CannotEdit if it has comments, which would be lost."""
    shown = body[found.value_start : found.value_end]
    items = tomllib.loads(f"x = {shown}")["x"]
    if not isinstance(items, list) or any(token.group().startswith("#") for token in _TOKEN.finditer(shown)):
        raise CannotEdit(f"{_dotted(found.path)} has comments in its brackets; edit it by hand")
    return items


def _statements(body: str) -> Iterator[Statement]:
    """The statements of a valid text, in order; blank lines and comments belong to none."""
    table: tuple[str, ...] = ()
    start = depth = 0
    equals, last = -1, 0
    is_header = False
    for token in _TOKEN.finditer(body + "\n"):
        mark = token.group()
        if mark == "\n" and not depth:
            stop = min(token.end(), len(body))
            if is_header:
                header = body[start:last].strip()
                table = _path(header.strip("[]"))
                yield Statement(start, stop, table, is_header=True, is_item=header.startswith("[["))
            elif equals >= 0:
                value = first_visible(body, equals + 1)
                end = _end_of_value(body, value, token.start(), last)
                yield Statement(start, stop, table + _path(body[start:equals]), False, value, end)
            start, equals, is_header = token.end(), -1, False
        elif mark == "=" and not depth and equals < 0:
            equals = token.start()
        elif mark in ("[", "{"):
            is_header = is_header or (equals < 0 and mark == "[")
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        if mark != "\n" and not mark.startswith("#"):
            last = token.end()


def _end_of_value(body: str, value: int, line_stop: int, last: int) -> int:
    """The end of a value: a number or a word has no token of its own, so a comment must be found on its line."""
    begin = max(value, last)
    comment = body.find("#", begin, line_stop)
    end = comment if comment >= 0 else line_stop
    return begin + len(body[begin:end].rstrip())


def _path(key: str) -> tuple[str, ...]:
    """The parts of a dotted key, read by the TOML parser itself."""
    found: Any = tomllib.loads(f"{key.strip()} = 0")
    parts = []
    while isinstance(found, dict):
        (part,) = found
        parts.append(part)
        found = found[part]
    return tuple(parts)


def _with_block(body: str, block: str) -> str:
    """Adds a block at the end, after a blank line. The text keeps its final line ending, or the lack of one."""
    end = line_end(body)
    if not body:
        return block
    if body.endswith("\n"):
        return body + end + block
    return body + end + end + block.removesuffix(end)


def _with_key(body: str, statements: Sequence[Statement], path: tuple[str, ...], value: Any) -> str:
    end = line_end(body)
    headers = [one for one in statements if one.is_header and one.path == path[: len(one.path)] and one.path != path]
    table = max(headers, key=lambda one: len(one.path)) if headers else None
    first_header = next((one.start for one in statements if one.is_header), None)
    if table is None:
        inside = [one for one in statements if first_header is None or one.start < first_header]
        depth = 0
    else:
        following = [one for one in statements if one.start > table.start]
        stop = next((one.start for one in following if one.is_header), len(body) + 1)
        inside = [table, *(one for one in following if one.start < stop)]
        depth = len(table.path)
    line = f"{_dotted(path[depth:])} = {_inline(value)}"
    if inside:
        at = inside[-1].end
        if not body[:at].endswith("\n"):
            return body + end + line
        return body[:at] + line + end + body[at:]
    return line + end + body


def _without(body: str, found: Sequence[Statement]) -> str:
    for one, stop in reversed(list(_runs(found))):
        start = one.start
        is_last = stop == len(body) and not body.endswith("\n")
        above = body[: _before_line_end(body, start)]
        if one.is_header and (not above or above.endswith("\n")):
            start = len(above)
        if is_last:
            start = _before_line_end(body, start)
        body = body[:start] + body[stop:]
    return body


def _runs(found: Sequence[Statement]) -> Iterator[tuple[Statement, int]]:
    """Each header with its keys, and comments between them, as one run; and each single key."""
    first: Statement | None = None
    stop = 0
    for one in found:
        if first is not None and first.is_header and not one.is_header:
            stop = one.end
            continue
        if first is not None:
            yield first, stop
        first, stop = one, one.end
    if first is not None:
        yield first, stop


def _before_line_end(body: str, index: int) -> int:
    """The index before a line ending that directly precedes `index`, if there is one."""
    if body[:index].endswith("\r\n"):
        return index - 2
    return index - 1 if body[:index].endswith("\n") else index


def _replaced(body: str, found: Sequence[Statement], block: str) -> str:
    runs = list(_runs(found))
    if len(runs) > 1:
        body = _without(body, [one for one in found if one.start >= runs[1][0].start])
    first, stop = runs[0]
    stop = min(stop, len(body))
    return body[: first.start] + (block if body[:stop].endswith("\n") else block.rstrip()) + body[stop:]


def _dotted(path: Sequence[str]) -> str:
    return ".".join(_key(part) for part in path)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _table(path: Sequence[str], value: Mapping[str, Any], end: str) -> str:
    lines = [f"[{_dotted(path)}]", *(f"{_key(key)} = {_inline(item)}" for key, item in value.items())]
    return end.join(lines) + end


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        inside = ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    raise CannotEdit("The new value cannot be written as TOML")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
