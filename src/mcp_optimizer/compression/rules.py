"""Finds the sentences of a text that carry a rule for callers, and writes each in its shortest form. Pure.

`signature` shows a description as its first sentence and these rules, and a parameter's note in the same way. A rule is
what a caller would otherwise get wrong: a default, a limit, a format, what is required, refused or ignored. What the
schema declares is not repeated. Only the beginning of a text is read, and what is kept has a maximum length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_optimizer.compression.cues import HINTING, TELLING, first_cue, weight
from mcp_optimizer.compression.defaults import Said, lift_default
from mcp_optimizer.compression.notes import first_sentence, opening, restates
from mcp_optimizer.compression.sentences import sentences

_LOOKED_AT = 4_000
_LONGEST_RULE = 200


@dataclass(frozen=True)
class _Room:
    """How many rules are kept of a text, how long they are together, and how much each must weigh."""

    rules: int
    letters: int
    least: int


_OF_A_DESCRIPTION = _Room(rules=5, letters=420, least=TELLING)
_OF_A_NOTE = _Room(rules=3, letters=240, least=TELLING)

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)")
_SKIPPED = re.compile(
    r"^[\W_]{0,8}(?:returns?|return values?|outputs?|responses?|examples?|samples?|usage examples?|see also|use cases?"
    r"|when to use|features|key features|best practices|error handling|next steps)\b[^.:\n]{0,40}(?::|$)",
    re.I,
)
_HEADING = re.compile(r"^(?:#|[\W_]{0,8}[A-Z][^.!?:\n]{0,60}:[ \t*]*$)")
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]")

_MARKS = re.compile(r"^(?:[\s#*•|>_–—✅❌❗⚠️🚨📋🔴💡-]|\d{1,2}[.)]\s)+")
_EMPHASIS = re.compile(r"\*\*|__(?=\W|$)|`(?=[\w./-]+`)|(?<=[\w./])`")
_LABEL = re.compile(
    r"^(?:please note(?: that)?|note(?: that)?|notes|important(?: note)?|warning|caution|critical|attention|tip|hint|nb"
    r"|optional|required|mandatory|description)[ ]?(?:[:!,.]| -| –| —)\s*|^note that ",
    re.I,
)
_SUBJECT = re.compile(
    r"^(?:this (?:tool|parameter|param|field|value|option|argument|operation|command) (?=(?:is|must|should|can|will|does|only|requires)\b)"
    r"|it (?=(?:is|must|should|can|will|only)\b)|please |be sure to |make sure (?:to |that )?|you (?=must|can|should|may|need)"
    r"|the (?:value|parameter) (?=must|should))",
    re.I,
)
_COPULA = re.compile(r"^is (?=required|only|ignored|not|always|used)", re.I)
_FILLER = re.compile(r"^\W*(?:\w[\w.-]*\W{1,3}(?:parameter |field )?(?:is )?)?(?:optional|required|mandatory)\W*$", re.I)
_EXAMPLE = re.compile(r"\s?\((?:e\.g\.?|for example|such as|ex)[,:]?[^()]{0,300}\)", re.I)
_WORD = re.compile(r"\w+")
_LITERAL = re.compile(r"\d+(?:\.\d+)?|'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`|\b(?:true|false)\b", re.I)
_CLAUSE = re.compile(r"[,;:] |\.\s| [-–—] | \(")


def described(description: str) -> str:
    """A tool's description: its first sentence, the sentence that deprecates it, and the rules of the rest."""
    first = opening(description)
    rest = _rest(description)
    if _is_warning(first):
        # What the tool does is said after the warning.
        purpose = next((text for text in rest if not weight(text)), "")
        first = f"{first} {_shortest(purpose)}".strip()
    kept = _kept(rest, first, "", _OF_A_DESCRIPTION)
    return " ".join([_ended(first), *kept]) if kept else first


def noted(note: str, name: str, shown: str) -> Said:
    """A parameter's note: its first sentence unless it restates the name, its rules, and its default.

    `shown` is how the signature writes the parameter: what it says is not repeated.
    """
    said = lift_default(note[:_LOOKED_AT], shown)
    units = list(_units(said.text))
    first = first_sentence(_without_filler(units[0])) if units else ""
    rest = [*_tail(units[0], first), *units[1:]] if units else []
    if restates(first, name):
        first = ""
    kept = _kept(rest, first, shown, _OF_A_NOTE)
    return Said(" ".join([_ended(first), *kept] if first and kept else [first, *kept]).strip(), said.default)


def _is_warning(sentence: str) -> bool:
    return re.match(r"\W{0,4}(?:security|important|warning|caution|deprecated|critical)\b", sentence, re.I) is not None


def _rest(description: str) -> list[str]:
    units = list(_units(description[:_LOOKED_AT]))
    return [*_tail(units[0], first_sentence(description)), *units[1:]] if units else []


def _tail(unit: str, first: str) -> list[str]:
    """What a very long first sentence lost."""
    whole = " ".join(unit.split())
    return [whole[len(first) - 1 :].strip(" ,;")] if first.endswith("…") and len(whole) > len(first) else []


def _units(text: str) -> Iterator[str]:
    """Sentences and list items, without examples and without what is said about results."""
    pending = ""
    for sentence in sentences("\n".join(_prose(text))):
        unit = sentence.strip()
        if _FILLER.match(unit):
            continue
        is_item = _BULLET.match(unit) is not None
        if pending and is_item and weight(unit) < TELLING and len(pending) + len(unit) < _LONGEST_RULE:
            pending += f"{'' if pending.endswith(':') else ';'} {_MARKS.sub('', unit)}"
            continue
        if pending:
            yield pending
        pending = ""
        if unit.endswith(":"):
            pending = unit
        else:
            yield unit
    if pending:
        yield pending


def _prose(text: str) -> Iterator[str]:
    """The lines outside code and outside sections that hold examples or describe results."""
    fenced, skipped, after_blank = False, False, False
    for number, line in enumerate(text.split("\n")):
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            continue
        elif number and _SKIPPED.match(line):
            skipped, after_blank = True, False
        elif not line.strip():
            after_blank = True
            yield line
        elif not skipped or _HEADING.match(line) or (after_blank and line[:1].isalpha()):
            skipped = after_blank = False
            yield line


def _kept(units: list[str], first: str, shown: str, room: _Room) -> list[str]:
    """The weightiest rules that fit, in their order."""
    known = {word.lower() for word in _WORD.findall(first)}
    rules: list[tuple[int, int, str]] = []
    for place, unit in enumerate(units):
        weighed = weight(unit.strip())
        if weighed < room.least or _is_declared(unit, shown):
            continue
        text = _shortest(unit)
        words = {word.lower() for word in _WORD.findall(text)}
        if words - known:
            rules.append((-weighed, place, text))
            known |= words
    left = room.letters
    kept: list[tuple[int, str]] = []
    for _, place, text in sorted(rules)[: room.rules]:
        if len(text) <= left:
            kept.append((place, text))
            left -= len(text)
    return [_ended(text) for _, text in sorted(kept)]


def _is_declared(unit: str, shown: str) -> bool:
    """Whether all that a short sentence names is in the parameter's type: its limits, values or default."""
    named = [literal.strip("'\"`").lower() for literal in _LITERAL.findall(unit)]
    if not named or not shown or len(unit) > 100:
        return False
    said = shown.lower()
    return all(literal in said for literal in named) and len(_WORD.findall(unit)) - len(named) < 8


def _shortest(unit: str) -> str:
    """A rule without marks, labels and filler; cut after a clause if it is very long."""
    text = " ".join(_without_filler(unit).split())
    if len(text) > 80:
        text = _EXAMPLE.sub("", text)
    text = text.rstrip(" :;,")
    if len(text) > _LONGEST_RULE:
        text = _cut(text)
    return text[:1].upper() + text[1:]


def _without_filler(unit: str) -> str:
    text = _EMPHASIS.sub("", _MARKS.sub("", unit.strip()))
    for pattern in (_LABEL, _MARKS, _LABEL, _SUBJECT, _COPULA):
        text = pattern.sub("", text, count=1)
    return text


def _cut(text: str) -> str:
    """At most _LONGEST_RULE letters around the word that makes it a rule, from clause to clause."""
    ends = [match.end() for match in _CLAUSE.finditer(text)]
    cue = first_cue(text)
    begin = 0 if cue < _LONGEST_RULE // 2 else max([end for end in ends if end <= cue], default=0)
    end = max([end for end in ends if cue < end <= begin + _LONGEST_RULE], default=0)
    if end <= begin + _LONGEST_RULE // 3:
        end = begin + len(text[begin : begin + _LONGEST_RULE].rsplit(" ", 1)[0])
    return text[begin:end].rstrip(" ,;:(-–—") + ("…" if end < len(text) else "")


def _ended(text: str) -> str:
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."
