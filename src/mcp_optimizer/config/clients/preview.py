"""A diff of a change to a client's file that is safe to show: values that are not ours are hidden.

Pure. Other entries may hold tokens anywhere, so every text is hidden unless it is part of our entry or really a key
of the file: what looks like a key may be a line of a comment or of a long text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mcp_optimizer.config.textfiles.kinds import FileKind, UnreadableText
from mcp_optimizer.config.textfiles.reading import parsed
from mcp_optimizer.runtime.patterns import regex

_HIDDEN = "…"
_LONGEST = 240
_MOST_LINES = 60
_PART = regex(r'("(?:\\.|[^"\\])*"|\'[^\']*\')(\s*[:=])?|(//|#|/\*).*|([^\s"\'{}\[\],:=]+)')
_ASSIGNED = regex(r"(\s*(?:- )?\s*)([\w.\-]+|\"[^\"]*\"|'[^']*')(\s*[:=])(\s.*|)\Z")
_HEADER = regex(r"\s*\[\[?[^\]]*\]?\]\s*\Z")
_NAME = regex(r"[\w\-]+|\"[^\"]*\"|'[^']*'")
_WORDS = frozenset({"true", "false", "null"})


def shown_change(before: str, after: str, path: str, kind: FileKind, ours: Iterable[Any]) -> list[str]:
    """The lines of a unified diff. `ours`: values whose texts may be shown."""
    known = {text for value in ours for text in _texts(value)}
    keys = known | _keys_of(before, kind) | _keys_of(after, kind)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="", n=2)
    shown: list[str] = []
    for number, line in enumerate(lines):
        if number < 2 or line.startswith("@@"):
            shown.append(line)
        elif len(line) > 100 * _LONGEST:
            shown.append(line[0] + _HIDDEN)
        else:
            hidden = _of_json(line[1:], known, keys) if kind is FileKind.JSON else _of_lines(line[1:], known, keys)
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


def _keys_of(text: str, kind: FileKind) -> set[str]:
    found: set[str] = set()
    try:
        waiting = [parsed(text, kind)]
    except UnreadableText:
        return found
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update(map(str, value))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _of_json(line: str, known: set[str], keys: set[str]) -> str:
    return _PART.sub(lambda part: _seen(part, known, keys), line)


def _seen(part: re.Match[str], known: set[str], keys: set[str]) -> str:
    quoted, colon, comment, word = part.groups()
    if quoted:
        inside = _unquoted(quoted)
        return part.group() if inside in (keys if colon else known) else f'"{_HIDDEN}"{colon or ""}'
    if comment:
        return f"{comment} {_HIDDEN}"
    return word if word in known or word in _WORDS else _HIDDEN


def _unquoted(text: str) -> str:
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text[:1] in ("'", '"') else text


def _of_lines(line: str, known: set[str], keys: set[str]) -> str:
    """A line of TOML or YAML. A line that is neither a header nor a key with its value may be part of a long text."""
    if not line.strip():
        return line
    if _HEADER.match(line):
        return line if all(_unquoted(part) in keys for part in _NAME.findall(line)) else _HIDDEN
    if assigned := _ASSIGNED.match(line):
        start, key, sign, value = assigned.groups()
        if not (_unquoted(key) in keys or all(part in keys for part in key.split("."))):
            return _HIDDEN
        return start + key + sign + _of_value(value, known, keys)
    dash, sign, value = line.partition("- ")
    return dash + sign + _of_value(value, known, keys) if sign and not dash.strip() else _HIDDEN


def _of_value(value: str, known: set[str], keys: set[str]) -> str:
    plain = value.strip()
    if not plain or plain in known or plain.strip("'\"") in known or plain in _WORDS:
        return value
    if plain[0] in "[{\"'":
        return " " + _of_json(plain, known, keys)
    return f" {_HIDDEN}"
