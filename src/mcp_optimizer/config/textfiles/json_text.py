"""JSON with comments: read as strict JSON of the same length, and edited so that every other byte stays. Used by
`reading` and `editing`.

Comments and trailing commas become spaces, so positions stay right; the standard library parses. Open brackets are
counted without recursion, so nesting depth is no problem.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.config.textfiles.kinds import BLANK, BOM, CannotEdit, UnreadableText, line_end, place
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


# Sets and removes values in the text of a JSON file, and leaves every other byte as it is. Inserted text can be
# recognised: an object that is created to hold a value has two spaces before its brace, so removing the value removes
# that object again.

_CREATED = ":  "
"""Separator before the brace of an object that was created for a value."""
_ALL_CREATED = ":   "
"""Separator before the first value in a text that was empty."""
_CREATED_BEFORE = " "
"""Mark after that brace, as written by earlier versions."""
_NEW_LINE = regex(r"\r?\n[ \t]*\Z")
_ONLY_NEW_LINE = regex(r"\r?\n[ \t]*")


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    if not text.removeprefix(BOM).strip():
        end = line_end(text)
        return text + _created(path, value, end, "  ", is_tall=True, mark=_ALL_CREATED) + end
    boxes, member = _walk(text, path)
    box, rest = boxes[-1], path[len(boxes) - 1 :]
    end, unit = line_end(text), _unit(text, boxes[0])
    is_tall = "\n" in text[boxes[0].open : boxes[0].close] or not boxes[0].members
    if member is not None:
        shown = _rendered(value, end + _indentation(text, member.start), unit, is_tall)
        return text[: member.value_start] + shown + text[member.value_end :]
    return _added(text, box, rest, value, end, unit, is_tall)


def without_value(text: str, path: Sequence[str]) -> list[str]:
    """Candidate texts, best first: the second one is for a comment that would swallow what follows."""
    boxes, member = _walk(text, path)
    if member is None:
        return [text]
    depth = len(boxes) - 1
    while depth and _was_created(text, boxes[depth]):
        depth -= 1
    if not depth and _is_all_created(text, boxes[0], path, member):
        return [text[: boxes[0].open]]
    box = boxes[depth]
    member = next(one for one in box.members if one.key == path[depth])
    if len(box.members) == 1:
        return [text[: box.open + 1] + _emptied(text, box) + text[box.close :]]
    return [_without_member(text, box, member, joins) for joins in (True, False)]


def _walk(text: str, path: Sequence[str]) -> tuple[list[ObjectSpan], JsonMember | None]:
    """The existing objects along a path, and the member at its end, if any."""
    readable = strict(text)
    if "\r" in text.replace("\r\n", ""):
        raise CannotEdit("Its lines end with a lone carriage return; save it with ordinary line ends first")
    start, boxes = first_visible(readable), list[ObjectSpan]()
    for number, key in enumerate(path):
        if readable[start] != "{":
            owner = f'"{".".join(path[:number])}"' if number else "The document"
            raise CannotEdit(f"{owner} is not an object, so nothing can be put into it")
        box = box_at(readable, start)
        boxes.append(box)
        keys = [member.key for member in box.members]
        if repeated := next((one for one in keys if one == key and keys.count(one) > 1), None):
            raise CannotEdit(f'"{repeated}" is there more than once; remove all but one first')
        member = next((member for member in box.members if member.key == key), None)
        if member is None:
            return boxes, None
        start = member.value_start
    return boxes, member


def _added(text: str, box: ObjectSpan, keys: Sequence[str], value: Any, end: str, unit: str, is_tall: bool) -> str:
    if not box.members:
        inside = text[box.open + 1 : box.close]
        # A single space marks objects that we created.
        inside += " " if inside and not inside.strip(" ") else ""
        outer = _indentation(text, box.open)
        before, after = (end + outer + unit, end + outer) if is_tall else ("", "")
        shown = _member(keys, value, before or end, unit, is_tall)
        return text[: box.open + 1] + inside + before + shown + after + text[box.close :]
    last = box.members[-1]
    loose = without_comments(text)
    comma = loose.find(",", last.value_end, box.close)
    has_comma = comma >= 0
    end_of_rest = end_of_visible(text, box.close, comma + 1 if has_comma else last.value_end)
    gap = text[end_of_visible(text, last.start, box.open + 1) : last.start]
    is_tall = "\n" in gap or "\n" in text[last.value_end : box.close]
    before = end + _indentation(text, last.start) if "\n" in gap else end + unit if is_tall else (gap or " ")
    shown = _member(keys, value, before if is_tall else end, unit, is_tall)
    middle = text[last.value_end : end_of_rest]
    comma_first, comma_last = ("", ",") if has_comma else (",", "")
    return text[: last.value_end] + comma_first + middle + before + shown + comma_last + text[end_of_rest:]


def _without_member(text: str, box: ObjectSpan, member: JsonMember, joins: bool) -> str:
    """Removes a member that has siblings. `joins`: the texts before and after it move together."""
    loose = without_comments(text)
    number = box.members.index(member)
    previous = box.members[number - 1] if number else None
    upto = box.members[number + 1].start if number + 1 < len(box.members) else box.close
    start = end_of_visible(text, member.start, box.open + 1) if joins else member.start
    comma = loose.find(",", member.value_end, upto)
    if comma >= 0:
        return text[:start] + text[member.value_end : comma] + text[comma + 1 :]
    assert previous is not None
    comma = loose.index(",", previous.value_end, member.start)
    return text[:comma] + text[comma + 1 : start] + text[member.value_end :]


def _parts(text: str, box: ObjectSpan) -> tuple[str, str, bool]:
    """The text around the only member of an object, without the lines that were added for it, and whether these were
    exactly ours.
    """
    only = box.members[0]
    before, after = text[box.open + 1 : only.start], text[only.value_end : box.close]
    loose = without_comments(text)
    comma = loose.find(",", only.value_end, box.close)
    if comma >= 0:
        after = text[only.value_end : comma] + text[comma + 1 : box.close]
    if line := _NEW_LINE.search(before):
        is_ours = comma < 0 and _ONLY_NEW_LINE.fullmatch(after) is not None
        return before[: line.start()], "" if is_ours else after, is_ours
    return before, after, comma < 0 and not after


def _was_created(text: str, box: ObjectSpan) -> bool:
    if len(box.members) != 1:
        return False
    before, _, is_ours = _parts(text, box)
    is_marked = before == "" and text[: box.open].endswith((_CREATED, _ALL_CREATED))
    return is_ours and (is_marked or before == _CREATED_BEFORE)


def _is_all_created(text: str, root: ObjectSpan, path: Sequence[str], member: JsonMember) -> bool:
    """Whether the whole text was created from an empty one for this value."""
    value = json.loads(strict(text)[member.value_start : member.value_end])
    return not text[: root.open].removeprefix(BOM).strip() and text == with_value(text[: root.open], path, value)


def _emptied(text: str, box: ObjectSpan) -> str:
    before, after, is_ours = _parts(text, box)
    if is_ours and before and not before.strip(" "):
        return before[1:]
    return before + after


def _indentation(text: str, index: int) -> str:
    line = text.rfind("\n", 0, index) + 1
    return text[line : first_visible(text, line)] if first_visible(text, line) <= index else text[line:index]


def _unit(text: str, root: ObjectSpan) -> str:
    if not root.members:
        return "  "
    outer, inner = _indentation(text, root.open), _indentation(text, root.members[0].start)
    return inner.removeprefix(outer) or "  "


def _member(keys: Sequence[str], value: Any, line: str, unit: str, is_tall: bool, mark: str = "") -> str:
    inner = _created(keys[1:], value, line, unit, is_tall) if keys[1:] else _rendered(value, line, unit, is_tall)
    return f"{_scalar(keys[0])}{mark or (_CREATED if keys[1:] else ': ')}{inner}"


def _created(keys: Sequence[str], value: Any, line: str, unit: str, is_tall: bool, mark: str = "") -> str:
    before, after = (line + unit, line) if is_tall else ("", "")
    return "{" + before + _member(keys, value, line + unit, unit, is_tall, mark) + after + "}"


def _rendered(value: Any, line: str, unit: str, is_tall: bool) -> str:
    """A value as JSON; `line` is a line end with the indentation of the line that it starts on."""
    if not isinstance(value, dict | list | tuple) or not value:
        return _scalar(value)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise CannotEdit("A key of the new value is not text")
        parts = [f"{_scalar(key)}: {_rendered(item, line + unit, unit, is_tall)}" for key, item in value.items()]
        opening, closing = "{}"
    else:
        parts = [_rendered(item, line + unit, unit, is_tall) for item in value]
        opening, closing = "[]"
        is_tall = is_tall and any(isinstance(item, dict | list | tuple) for item in value)
    if not is_tall:
        return opening + ", ".join(parts) + closing
    return opening + line + unit + ("," + line + unit).join(parts) + line + closing


def _scalar(value: Any) -> str:
    try:
        shown = json.dumps(value, ensure_ascii=False, allow_nan=False)
        shown.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise CannotEdit("The new value cannot be written as JSON") from None
    return shown
