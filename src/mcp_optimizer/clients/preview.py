"""A change of a client's file as a diff that may be shown: values that are not ours are left out.

Pure. Other entries hold tokens in places that nobody can list, so every text is hidden unless it is part of our entry.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mcp_optimizer.textfiles.kinds import FileKind

_HIDDEN = "…"
_LONGEST = 240
_MOST_LINES = 60
_PART = re.compile(r'("(?:\\.|[^"\\])*"|\'[^\']*\')(\s*[:=])?|(//|#|/\*).*|([^\s"\'{}\[\],:=]{4,})')
_ASSIGNED = re.compile(r"(\s*(?:- )?\s*)([\w.\-]+|\"[^\"]*\"|'[^']*')(\s*[:=])(\s.*|)\Z")
_HEADER = re.compile(r"\s*\[\[?[^\]]*\]?\]\s*\Z")
_WORDS = frozenset({"true", "false", "null"})


def shown_change(before: str, after: str, path: str, kind: FileKind, ours: Iterable[Any]) -> list[str]:
    """The lines of a unified diff. `ours` are values whose texts may be seen."""
    known = {text for value in ours for text in _texts(value)}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="", n=2)
    shown: list[str] = []
    for number, line in enumerate(lines):
        if number < 2 or line.startswith("@@"):
            shown.append(line)
        elif len(line) > 100 * _LONGEST:
            shown.append(line[0] + _HIDDEN)
        else:
            hidden = _of_json(line[1:], known) if kind is FileKind.JSON else _of_lines(line[1:], known)
            shown.append((line[0] + hidden)[:_LONGEST])
        if len(shown) > _MOST_LINES:
            return [*shown, _HIDDEN]
    return shown


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (str(key), *_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)


def _of_json(line: str, known: set[str]) -> str:
    return _PART.sub(lambda part: _seen(part, known), line)


def _seen(part: re.Match[str], known: set[str]) -> str:
    quoted, colon, comment, word = part.groups()
    if quoted:
        inside = quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        return part.group() if colon or inside in known else f'"{_HIDDEN}"'
    if comment:
        return f"{comment} {_HIDDEN}"
    return word if word in known or word in _WORDS else _HIDDEN


def _of_lines(line: str, known: set[str]) -> str:
    """A line of TOML or YAML. One that is neither a header nor a key with its value may be part of a long text."""
    if not line.strip() or _HEADER.match(line):
        return line
    if assigned := _ASSIGNED.match(line):
        start, key, sign, value = assigned.groups()
        return start + key + sign + _of_value(value, known)
    dash, sign, value = line.partition("- ")
    return dash + sign + _of_value(value, known) if sign and not dash.strip() else _HIDDEN


def _of_value(value: str, known: set[str]) -> str:
    plain = value.strip()
    if not plain or plain in known or plain.strip("'\"") in known or plain in _WORDS:
        return value
    if plain[0] in "[{\"'":
        return " " + _of_json(plain, known)
    return f" {_HIDDEN}"
