"""Where the members of a JSON object lie in its text. Works on strict JSON that has been parsed before.

Used by `json_edits` and `reading`. It keeps a count of open brackets, never a call for each, so depth costs nothing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_optimizer.textfiles.kinds import BLANK

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+"|[{}\[\],:]')
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


@dataclass(frozen=True)
class JsonMember:
    key: str
    start: int
    value_start: int
    value_end: int


@dataclass(frozen=True)
class Box:
    """An object: where its braces are, and its members."""

    open: int
    close: int
    members: tuple[JsonMember, ...]


def first_visible(text: str, start: int = 0) -> int:
    """The index of the first character that is not blank, or the length of the text."""
    found = _NOT_BLANK.search(text, start)
    return found.start() if found else len(text)


def end_of_visible(text: str, end: int, least: int = 0) -> int:
    """The index behind the last character before `end` that is not blank, but at least `least`."""
    while end > least and text[end - 1] in BLANK:
        end -= 1
    return end


def box_at(text: str, start: int) -> Box:
    """The object whose opening brace is at `start`."""
    depth, key, key_start, value_start = 0, "", -1, -1
    members: list[JsonMember] = []
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if depth == 1 and mark in ("}", ",") and value_start >= 0:
            members.append(JsonMember(key, key_start, value_start, end_of_visible(text, token.start())))
            key_start = value_start = -1
        if depth == 1 and mark[0] == '"' and key_start < 0:
            key, key_start = json.loads(mark), token.start()
        elif depth == 1 and mark == ":":
            value_start = first_visible(text, token.end())
        elif mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
            if not depth:
                return Box(start, token.start(), tuple(members))
    raise AssertionError("the text was parsed before, so the object is closed")


def repeated_keys(text: str) -> list[str]:
    """`path (lines 3, 9)` for each key that an object has more than once."""
    found: list[str] = []
    # For each open bracket: the places of its keys (none in a list), and the key whose value is being read.
    open_ones: list[tuple[dict[str, list[int]] | None, list[str]]] = []
    is_key = False
    ends = [match.start() for match in re.finditer("\n", text)]
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in ("{", "["):
            open_ones.append(({} if mark == "{" else None, []))
            is_key = mark == "{"
        elif mark in ("}", "]"):
            places, _ = open_ones.pop()
            found += _repeated(ends, places or {}, [key for _, keys in open_ones for key in keys])
        elif mark == ",":
            is_key = open_ones[-1][0] is not None
        elif mark[0] == '"' and is_key:
            places, current = open_ones[-1]
            assert places is not None
            current[:] = [json.loads(mark)]
            places.setdefault(current[0], []).append(token.start())
            is_key = False
    return found


def _repeated(ends: list[int], places: dict[str, list[int]], outer: list[str]) -> Iterator[str]:
    for key, starts in places.items():
        if len(starts) > 1:
            lines = ", ".join(str(bisect_left(ends, start) + 1) for start in starts[:5])
            yield f"{'.'.join([*outer, key])} (lines {lines})"
