"""JSON with comments as strict JSON of the same length, and the positions of an object's members in that text.

Used by `reading` and `json_edits`. Comments and trailing commas become spaces, so positions stay right; the standard
library parses. Open brackets are counted without recursion, so nesting depth is no problem.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_optimizer.config.textfiles.kinds import BLANK, BOM, UnreadableText, place
from mcp_optimizer.runtime.patterns import regex

# What stays, in one piece; or a comment; or a comma followed only by whitespace and comments before a closing bracket.
# A comment is atomic, `(?>`: it ends at its first "*/" and is never extended to a later one. A string or comment that
# is never closed takes the rest, so that no text is searched twice.
_LAST = r"(?:\s|//[^\n]*\n|(?>/\*.*?\*/))*+[}\]]"
_PART = regex(
    rf"""((?:[^",/]++|"(?:[^"\\]++|\\.)*+"?|/(?![/*])|,(?!{_LAST}))++)|(//[^\n]*|(?>/\*.*?(?:\*/|\Z)))|,""", re.DOTALL
)
_VISIBLE = regex(r"[^\n]")


def without_comments(text: str) -> str:
    """The text with each comment replaced by spaces. Trailing commas stay."""
    return _PART.sub(lambda part: _blank(part) if part.group(2) else part.group(), _without_bom(text))


def strict(text: str) -> str:
    """The text as strict JSON: comments and trailing commas replaced by spaces, line by line."""
    return _PART.sub(lambda part: part.group(1) or _blank(part), _without_bom(text))


def _without_bom(text: str) -> str:
    return " " + text[1:] if text.startswith(BOM) else text


def _blank(part: re.Match[str]) -> str:
    found = part.group()
    if found.startswith("/*") and (len(found) < 4 or not found.endswith("*/")):
        raise UnreadableText(f"A comment is never closed {place(part.string, part.start())}")
    return _VISIBLE.sub(" ", found)


_TOKEN = regex(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]')
_NOT_BLANK = regex(r"[^ \t\r\n]")


@dataclass(frozen=True)
class JsonMember:
    key: str
    start: int
    value_start: int
    value_end: int


@dataclass(frozen=True)
class ObjectSpan:
    """An object: the positions of its braces, and its members."""

    open: int
    close: int
    members: tuple[JsonMember, ...]


def first_visible(text: str, start: int = 0) -> int:
    """The index of the first character that is not blank, or the length of the text."""
    found = _NOT_BLANK.search(text, start)
    return found.start() if found else len(text)


def end_of_visible(text: str, end: int, least: int = 0) -> int:
    """The index after the last non-blank character before `end`, but at least `least`."""
    while end > least and text[end - 1] in BLANK:
        end -= 1
    return end


def box_at(text: str, start: int) -> ObjectSpan:
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
                return ObjectSpan(start, token.start(), tuple(members))
    raise AssertionError("the text was parsed before, so the object is closed")


def repeated_keys(text: str) -> list[str]:
    """`path (lines 3, 9)` for each key that an object has more than once."""
    found: list[str] = []
    # For each open bracket: the positions of its keys (none in a list), and the key whose value is being read.
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
