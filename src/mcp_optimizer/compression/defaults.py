"""Takes a default that a note states out of it, so that the signature can write it as part of the type. Pure.

`Number of rows (default: 20)` becomes `Number of rows` and `20`; `By default the last 90 days` becomes `last 90 days`.
A default that the signature already shows is dropped from the note. What is more than a value stays in the note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 40
_VALUE = r"([^\n.;,()]{1,60}(?:\.\d[^\n.;,()]{0,40})?)"
_IS = r"(?: value)?(?: is(?: set)? to| is| to)? ?[:=]? ?"
_END = r"(?=\.(?:\s|$)|\n|$)"
_BEGIN = r"(?:^|(?<=[.!?]\s)|(?<=\n))"
_OMITTED = (
    r"(?:if|when) (?:it is |this is |none is )?(?:omitted|unset|absent|empty|(?:not )?"
    r"(?:provided|specified|set|given|supplied|passed)),?(?: then)? "
)

_IN_BRACKETS = re.compile(rf"\s?\((?:optional[,;] ?)?(?:the )?default(s?{_IS}){_VALUE}(?:[;,] ?optional)?\)", re.I)
_AT_HEAD_OF_BRACKETS = re.compile(
    rf"\(default(s?{_IS}){_VALUE}[,;] (?=(?:max|min|range|up to|optional|required|cap|limit|between)[^()\n]{{1,60}}\))",
    re.I,
)
_AT_END_OF_BRACKETS = re.compile(rf"[,;] (?:and )?default(s?{_IS}){_VALUE}\)", re.I)
_IF_OMITTED = re.compile(
    rf"{_BEGIN}{_OMITTED}(?:(?:it |this )?(?:will )?(?:default(s? to| is) |use(s? )){_VALUE}"
    rf"|(){_VALUE} (?:is|are|will be) used){_END}",
    re.I,
)
_BY_DEFAULT = re.compile(
    rf"{_BEGIN}by default,?( uses?)? (?=the |last |all |no |current |\d|['\"`]|a single ){_VALUE}{_END}", re.I
)
_SENTENCE = re.compile(
    rf"(?:^|(?<=[.!?)\n])\s?|[,;] (?:it )?|(?<=\s)[-–—] )(?:the )?default(s?{_IS}){_VALUE}{_END}", re.I
)
_PATTERNS = (_IN_BRACKETS, _AT_HEAD_OF_BRACKETS, _AT_END_OF_BRACKETS, _IF_OMITTED, _BY_DEFAULT, _SENTENCE)

_MARK = re.compile(r"\b(?:is|to)\b|[:=]")
_OF_PARTS = re.compile(r": (?:obj|any|\{)")
_MENTIONS = re.compile(r"default| used?\b| uses\b", re.I)
_WRAPPED = re.compile(r"\n(?!\s{0,40}(?:\n|[-*•#|]|\d+[.)]))[ \t]*")
_CONDITION = re.compile(r"\b(?:if|when|unless|for)\b[^.\n]{0,120}$", re.I)
_MORE_THAN_A_VALUE = re.compile(
    r"^(?:to|of|in|for|from|as|set|match|value|names?)\b|^\W*$|\b(?:returns?|will|is|are|has|have|if|when|only|which|that|this|it|uses?"
    r"|searches|includes?|lists?|shows?|gets?|defaults?|depends|instead|caps|max|then)\b",
    re.I,
)
_NOTHING = frozenset(("none", "null", "undefined", "not set", "empty", "empty string", "n/a", "unset"))
_OFF_AND_ON = {"off": "false", "disabled": "false", "no": "false", "on": "true", "enabled": "true", "yes": "true"}


@dataclass(frozen=True)
class Said:
    """A note, and the default that it states; no default if the signature shows one, or if the note states none."""

    text: str
    default: str = ""


def lift_default(note: str, shown: str) -> Said:
    """The note without its default, and the default as the signature writes it after the type."""
    if not _MENTIONS.search(note):
        return Said(note)
    note = _WRAPPED.sub(" ", note)
    declared = shown.rpartition(" = ")[2].strip("'\"").lower() if " = " in shown else ""
    # In a note on an object, brackets are about one of its keys.
    for pattern in _PATTERNS[3:] if _OF_PARTS.search(shown) else _PATTERNS:
        for match in pattern.finditer(note):
            found = _found(match)
            plain = found.strip("'\"").lower()
            is_other = bool(declared) and _OFF_AND_ON.get(plain, plain) != declared and plain not in _NOTHING
            if found and not is_other:
                return Said(_without(match), "" if declared or plain in _NOTHING else found)
    return Said(note)


def _found(match: re.Match[str]) -> str:
    """The default that was matched; empty if it is more than a value, or that of something else."""
    *marks, value = [group for group in match.groups() if group is not None]
    found = _value(value)
    is_marked = any(_MARK.search(mark) for mark in marks) or match.re in (_IF_OMITTED, _BY_DEFAULT)
    if not is_marked and (not match.start() or " " in found):
        # "Default branch name" names the parameter.
        return ""
    before = match.string[max(match.start() - 200, 0) : match.start()]
    in_brackets = match.re in (_IN_BRACKETS, _AT_HEAD_OF_BRACKETS, _AT_END_OF_BRACKETS)
    if (in_brackets and ". " in before) or (match.re is _SENTENCE and _CONDITION.search(before)):
        return ""
    return "" if len(found) > _LONGEST or _MORE_THAN_A_VALUE.search(found) else found


def _without(match: re.Match[str]) -> str:
    before, after = match.string[: match.start()], match.string[match.end() :]
    if match.re is _AT_HEAD_OF_BRACKETS:
        return f"{before}({after}"
    if match.re is _AT_END_OF_BRACKETS:
        return f"{before}){after}"
    if match.re is not _IN_BRACKETS and before.rstrip()[-1:] in ("", ".", "!", "?", "\n"):
        after = after.removeprefix(".")
    return f"{before}{after}".strip()


def _value(text: str) -> str:
    """The value as it is written after `=`: texts in single quotes, numbers and words as they are."""
    text = " ".join(text.split()).strip("*_ ").removeprefix("- ")
    if len(text) > 2 and text[0] in "`\"'" and text[-1] == text[0] and text[0] not in text[1:-1]:
        inside = text[1:-1]
        is_code = text[0] == "`" and re.fullmatch(r"[\d.]+|true|false|null|none|[\[{].{0,40}", inside, re.I)
        return inside if is_code or "'" in inside else f"'{inside}'"
    text = text.removeprefix("the ")
    return text.lower() if text in ("True", "False") else text
