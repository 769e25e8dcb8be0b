"""Takes a default that a note states out of it, so that the signature can write it as part of the type. Pure.

`Number of rows (default: 20)` becomes `Number of rows` and `20`; `By default the last 90 days` becomes `last 90 days`.
A default that the signature already shows is dropped from the note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST = 40

_VALUE = r"([^\n.;,()]{1,60}(?:\.\d[^\n.;,()]{0,40})?)"
_IN_BRACKETS = re.compile(
    rf"\s?\((?:optional[,;] ?)?(?:the )?defaults?(?: value)?(?: is| to|:|=)? ?[:=]? ?{_VALUE}(?:[;,] ?optional)?\)", re.I
)
_AT_HEAD_OF_BRACKETS = re.compile(rf"\((?:defaults?(?: is| to|:|=)?) ?{_VALUE}[,;] (?=[^()\n]{{1,80}}\))", re.I)
_AT_END_OF_BRACKETS = re.compile(rf"[,;] (?:and )?defaults?(?: is| to|:|=)? ?{_VALUE}\)", re.I)
_SENTENCE = re.compile(
    rf"(?:^|(?<=[.!?)\n])\s?|[,;] |(?<=\s)[-–—] )(?:the )?(?:it )?default(?:s|s? values?| is|ing)?(?: is| to|:|=)? ?[:=]? ?{_VALUE}(?=\.(?:\s|$)|\n|$)",
    re.I,
)
_BY_DEFAULT = re.compile(rf"(?:^|(?<=[.!?]\s)|(?<=\n))by default,? (?:this is |it is |uses? )?{_VALUE}(?=\.(?:\s|$)|\n|$)", re.I)
_IF_OMITTED = re.compile(
    r"(?:^|(?<=[.!?]\s)|(?<=\n))(?:if|when) (?:it is |this is )?(?:omitted|unset|absent|empty|not (?:provided|specified|set|given|supplied|passed))"
    rf",? (?:(?:it |this )?(?:defaults? to|default is|will default to|uses?|will use) {_VALUE}|{_VALUE} (?:is|are|will be) used)(?=\.(?:\s|$)|\n|$)",
    re.I,
)
_PATTERNS = (_IN_BRACKETS, _AT_HEAD_OF_BRACKETS, _AT_END_OF_BRACKETS, _IF_OMITTED, _BY_DEFAULT, _SENTENCE)

_CLAUSE = re.compile(
    r"\b(?:returns?|will|is|are|if|when|only|which|that|this|it|uses?|searches|includes?|lists?|shows?|gets?)\b", re.I
)
_NOTHING = frozenset(("none", "null", "", "undefined", "not set", "empty", "empty string", "n/a"))
_OFF_AND_ON = {"off": "false", "disabled": "false", "no": "false", "on": "true", "enabled": "true", "yes": "true"}


@dataclass(frozen=True)
class Said:
    """A note, and the default that it states; no default if the signature shows one, or if the note states none."""

    text: str
    default: str = ""


def lift_default(note: str, shown: str) -> Said:
    """The note without its default, and the default as the type of a parameter shows it."""
    if "efault" not in note and "EFAULT" not in note and " used" not in note and " use" not in note:
        return Said(note)
    declared = shown.rpartition(" = ")[2].strip("'\"").lower() if " = " in shown else ""
    for pattern in _PATTERNS:
        for match in pattern.finditer(note):
            found = _value(next(group for group in match.groups() if group is not None))
            if not found or len(found) > _MOST or _CLAUSE.search(found):
                continue
            plain = found.strip("'\"").lower()
            if declared and _OFF_AND_ON.get(plain, plain) != declared and plain not in _NOTHING:
                continue
            text = _joined(note[: match.start()], match, note[match.end() :])
            return Said(text, "" if declared or plain in _NOTHING else found)
    return Said(note)


def _joined(before: str, match: re.Match[str], after: str) -> str:
    between = "(" if match.re is _AT_HEAD_OF_BRACKETS else ")" if match.re is _AT_END_OF_BRACKETS else ""
    if match.re in (_SENTENCE, _BY_DEFAULT, _IF_OMITTED) and before.rstrip()[-1:] in ("", ".", "!", "?", "\n"):
        after = after.removeprefix(".")
    return f"{before}{between}{after}".strip()


def _value(text: str) -> str:
    """The value as it is written after `=`: quoted with single quotes, numbers and words as they are."""
    text = " ".join(text.split()).strip("*_ ")
    if len(text) > 2 and text[0] in "`\"'" and text[-1] == text[0]:
        inside = text[1:-1]
        is_text = text[0] != "`" or not re.fullmatch(r"[\d.]+|true|false|null|none|\[.*|\{.*", inside, re.I)
        return f"'{inside}'" if is_text and "'" not in inside else inside
    for filler in ("the ", "a value of ", "value "):
        text = text.removeprefix(filler)
    return text.lower() if text in ("True", "False") else text
