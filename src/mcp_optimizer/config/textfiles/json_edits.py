"""Sets and removes values in the text of a JSON file, and leaves every other byte as it is.

Called by `editing`, which checks the results. Inserted text can be recognised: an object that is created to hold a
value has two spaces before its brace, so removing the value removes that object again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcp_optimizer.config.textfiles import json_text
from mcp_optimizer.config.textfiles.json_text import JsonMember, ObjectSpan, box_at, end_of_visible, first_visible
from mcp_optimizer.config.textfiles.kinds import BOM, CannotEdit, line_end
from mcp_optimizer.runtime.patterns import regex

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
    readable = json_text.strict(text)
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
    loose = json_text.without_comments(text)
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
    loose = json_text.without_comments(text)
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
    loose = json_text.without_comments(text)
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
    value = json.loads(json_text.strict(text)[member.value_start : member.value_end])
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
