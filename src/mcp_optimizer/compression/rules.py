"""Extracts from a text the sentences with rules for callers, each in its shortest form. Pure.

`signature` shows a description as its first sentence and these rules, and parameters' notes in the same way. A rule is
something a caller would otherwise get wrong: a default, format, limit or condition. A default is removed from its note,
because the signature writes it as part of the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mcp_optimizer.compression.notes import first_sentence, opening, restates
from mcp_optimizer.compression.sentences import (
    BINDING,
    HINTING,
    LONGEST,
    TELLING,
    clause_before,
    cut,
    ended,
    of_a_description,
    of_a_note,
    plain,
    plainly,
    sentences,
    shortest,
    units,
    without_filler,
)
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.deprecation import sentence as deprecation

_LONGEST = 40
_VALUE = r"([^\n.;,()]{1,60}(?:\.\d[^\n.;,()]{0,40})?)"
_IS = r"(?: value)?(?: is(?: set)? to| is| to)? ?[:=]? ?"
_END = r"(?=\.(?:\s|$)|\n|$)"
_BEGIN = r"(?:^|(?<=[.!?]\s)|(?<=\n))"
_OMITTED = (
    r"(?:if|when) (?:it is |this is |none is )?(?:omitted|unset|absent|empty|(?:not )?"
    r"(?:provided|specified|set|given|supplied|passed)),?(?: then)? "
)

# Compiled here: a match says which of these it is of.
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

_MARK = regex(r"\b(?:is|to)\b|[:=]")
_OF_PARTS = regex(r": (?:obj|any|\{)")
_MENTIONS = regex(r"default| used?\b| uses\b", re.I)
_WRAPPED = regex(r"\n(?!\s{0,40}(?:\n|[-*•#|]|\d+[.)]))[ \t]*")
_CONDITION = regex(r"\b(?:if|when|unless|for)\b[^.\n]{0,120}$", re.I)
_MORE_THAN_A_VALUE = regex(
    r"^(?:to|of|in|for|from|as|set|match|value|names?)\b|^\W*$|\b(?:returns?|will|is|are|has|have|if|when|only|which|that|this|it|uses?"
    r"|searches|includes?|lists?|shows?|gets?|defaults?|depends|instead|caps|max|then)\b",
    re.I,
)
_NOTHING = frozenset(("none", "null", "undefined", "not set", "empty", "empty string", "n/a", "unset"))
_OFF_AND_ON = {"off": "false", "disabled": "false", "no": "false", "on": "true", "enabled": "true", "yes": "true"}


@dataclass(frozen=True)
class StatedDefault:
    """A note and the default that it states; no default if the signature shows one, or if the note states none."""

    text: str
    default: str = ""


def lift_default(note: str, shown: str) -> StatedDefault:
    """The note without its default, and the default as the signature writes it after the type."""
    if not _MENTIONS.search(note):
        return StatedDefault(note)
    note = _WRAPPED.sub(" ", note)
    declared = shown.rpartition(" = ")[2].strip("'\"").lower() if " = " in shown else ""
    # In a note on an object, brackets refer to one of its keys.
    for pattern in _PATTERNS[3:] if _OF_PARTS.search(shown) else _PATTERNS:
        for match in pattern.finditer(note):
            found = _found(match)
            plain = found.strip("'\"").lower()
            is_other = bool(declared) and _OFF_AND_ON.get(plain, plain) != declared and plain not in _NOTHING
            if found and not is_other:
                return StatedDefault(_without(match), "" if declared or plain in _NOTHING else found)
    return StatedDefault(note)


def _found(match: re.Match[str]) -> str:
    """The matched default; empty if it is more than a value or belongs to something else."""
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
    """The value as written after `=`: texts in single quotes, numbers and words as they are."""
    text = " ".join(text.split()).strip("*_ ").removeprefix("- ")
    if len(text) > 2 and text[0] in "`\"'" and text[-1] == text[0] and text[0] not in text[1:-1]:
        inside = text[1:-1]
        is_code = text[0] == "`" and re.fullmatch(r"[\d.]+|true|false|null|none|[\[{].{0,40}", inside, re.I)
        return inside if is_code or "'" in inside else f"'{inside}'"
    text = text.removeprefix("the ")
    return text.lower() if text in ("True", "False") else text


_LOOKED_AT = 4_000
_LONG_RULE = 40
_LONGEST_HINT = 120
_SHORTEST_CUT = 80
_HEADING_WORDS = 3
_MOSTLY = 0.65
_AS_ABOVE = " (As above.)"

_FEW = 6
_LETTERS_OF_A_NOTE = 190
_LETTERS_OF_ONE_OF_MANY = 120
_LETTERS_OF_ALL_NOTES = 1_600


@dataclass(frozen=True)
class _Room:
    """Limits the rules kept of a text: their number, their total length, and their minimum weight."""

    rules: int
    letters: int
    least: int = TELLING


_OF_A_DESCRIPTION = _Room(rules=4, letters=330)
_OF_A_TOOL_WITHOUT_PARAMETERS = _Room(rules=3, letters=220)
_BINDING_OF_A_DESCRIPTION = _Room(rules=2, letters=240, least=BINDING)
_OF_A_NESTED_NOTE = _Room(rules=1, letters=60)


@dataclass(frozen=True)
class NoteContext:
    """A parameter's surroundings: its tool's name and number of parameters, and whether an object is around it."""

    tool: str = ""
    parameters: int = 1
    is_nested: bool = False

    def room(self) -> _Room:
        """The limits for each note: the more parameters a tool has, the less of each note is kept."""
        if self.is_nested:
            return _OF_A_NESTED_NOTE
        if self.parameters <= _FEW:
            return _Room(3, _LETTERS_OF_A_NOTE, HINTING)
        share = max(_LETTERS_OF_ONE_OF_MANY, _LETTERS_OF_ALL_NOTES // self.parameters)
        return _Room(3, min(_LETTERS_OF_A_NOTE, share))


ALONE = NoteContext()

_FILLER = regex(
    r"^\W{0,8}(?:\w[\w.-]{0,60}\W{1,3}(?:parameter |field )?(?:is )?)?(?:optional|required|mandatory)\W{0,8}$", re.I
)
_ID_OF = regex(r"^(?:the )?(?:unique )?(?:ids?|identifiers?) of (?:the |an? )?(?=\w)", re.I)
_BRACKETS = regex(r"\s?\(([^()\n]{1,60})\)")
_THIS_TOOL = regex(
    r"^(?:purpose|description|summary|overview): |^use this (?:tool )?(?:to |for )(?=[a-z])"
    r"|^(?:this|the) (?:tool|function|endpoint|operation|method|api) (?:is (?:used|designed) to |can be used to |will "
    r"|(?:allows|enables) (?:you|users) to |lets (?:you|users) |helps )?(?=[a-z]{3})"
    r"(?!is |was |has |can |must |should |requires? |does |only )",
    re.I,
)
_PURPOSE = regex(r"^\W{0,4}purpose\W{0,4}\n[ \t]*(?:[-*•]|\d[.)])?[ \t]*", re.I | re.M)
_SUCCESSOR = regex(r"\b(?:use|replaced by|instead)\b", re.I)
_WARNING = regex(r"\W{0,4}(?:security|important|warning|caution|deprecated|critical)\b", re.I)
_ARTICLE = regex(r"^(?:(?:optional|required)[:,]? )?(?:(?:the|an?) )?(?=[^\W_]{2,}(?:[^\w]|$))(\w)", re.I)
_EMPHATIC = regex(r"\b(?:MUST|NOT|ONLY|NEVER|ALWAYS|REQUIRES?|REQUIRED|EXACTLY)\b")
_WORD = regex(r"\w+")
_LITERAL = regex(r"\d+(?:\.\d+)?|'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`|\b(?:true|false)\b", re.I)
_BETWEEN_VALUES = r"(?:, or |, and |, | or | and )"
_QUOTED = r"(?:'[^'\n]{1,60}'|\"[^\"\n]{1,60}\"|`[^`\n]{1,60}`)"
_VALUES = regex(rf"(?::| -) (?:one of |either )?{_QUOTED}(?:{_BETWEEN_VALUES}{_QUOTED})+(?=[.;]|$)")
"""A list of values at the end of a sentence."""

_OF_IDS = ("_id", "_ids", "id", "ids")
_DECLARING = frozenset(
    "must be one of valid values value are is the can could should or and default defaults to between from in range "
    "maximum minimum max min limit a an allowed options option possible supported accepts either up at most least it "
    "this available choose number types type".split()
)


def described(description: str, notes: Mapping[str, str] = MappingProxyType({})) -> str:
    """A tool's description: its first sentence, the sentence that deprecates it, and the rules in the rest.

    `notes` are the notes on the tool's parameters; rules that they state are not repeated.
    """
    first = _opening(description)
    rest = _after_first(list(_units(description)), first_sentence(description))
    if deprecation(description):
        successor = next((unit for unit in rest[:2] if _SUCCESSOR.search(unit)), "")
        first = f"{first} {shortest(successor)}".strip() if successor not in first else first
    if _WARNING.match(first):
        # The purpose comes after the warning.
        purpose = first_sentence(description.partition("\n\n")[2])
        first = f"{ended(first)} {purpose}".strip()
    told = [unit for unit in rest if not _is_noted(unit, notes)]
    room = _OF_A_DESCRIPTION if notes else _OF_A_TOOL_WITHOUT_PARAMETERS
    kept = _kept(told, lambda unit: of_a_description(unit, notes), first, room)
    return " ".join([ended(first), *kept]) if kept else first


def binding(description: str, notes: Mapping[str, str] = MappingProxyType({})) -> str:
    """The rules of a description without which a call is refused or does damage, and the sentence that deprecates it.

    For a description whose purpose is stated in other words.
    """
    units_said = list(_units(description))
    told = [unit for unit in units_said[1:] if not _is_noted(unit, notes)]
    kept = _kept(told, lambda unit: of_a_description(unit, notes), "", _BINDING_OF_A_DESCRIPTION)
    warning = " ".join(deprecation(description).split())
    rules = [rule for rule in kept if rule.rstrip(".") not in warning]
    return " ".join([ended(warning), *rules] if warning else rules)


def noted(note: str, name: str, shown: str, setting: NoteContext = ALONE) -> StatedDefault:
    """A parameter's note: its first sentence unless it restates the name, its rules, and its default.

    `shown` is the parameter as the signature writes it; facts in it are not repeated.
    """
    said = lift_default(note[:_LOOKED_AT], shown)
    text = _BRACKETS.sub(lambda found: "" if _is_declared(found.group(1), shown) else found.group(), said.text)
    told = [_without_values(unit, shown) for unit in _units(text) if not _is_declared(unit, shown)]
    first = first_sentence(without_filler(told[0])) if told else ""
    rest = _after_first(told, first)
    if name.lower().endswith(_OF_IDS):
        first = _ID_OF.sub("", first, count=1)
    first = _ARTICLE.sub(lambda found: found.group(1).upper(), first, count=1)
    if restates(first, name, setting.tool):
        first = ""
    kept = _kept(rest, of_a_note, first, setting.room())
    whole = " ".join([ended(first), *kept] if first and kept else [first, *kept]).strip()
    return StatedDefault(whole.removesuffix("."), said.default)


class RulesWrittenOnce:
    """Writes out each long rule only once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def note(self, text: str) -> str:
        """The note with "As above" in place of each long rule that an earlier note had."""
        first, *rules = sentences(text) if text.strip() else [text]
        kept = (_AS_ABOVE if rule.strip(" .") in self._said else rule for rule in rules)
        written = "".join([first, *kept]).rstrip()
        self._said.update(said for rule in rules if len(said := rule.strip(" .")) > _LONG_RULE)
        return written


def once(lines: list[str], mark: str) -> list[str]:
    """The lines of a signature, each long rule written out only once; notes begin after the mark."""
    said = RulesWrittenOnce()
    return [said.note(line) if mark in line else line.rstrip() for line in lines]


def _opening(description: str) -> str:
    """The first sentence about the tool's purpose, without "This tool"."""
    first = opening(description)
    if len(first.split()) <= _HEADING_WORDS and (purpose := _PURPOSE.search(description, 0, _LOOKED_AT)):
        # The first line is a heading, and another heading marks the purpose.
        first = first_sentence(description[purpose.end() : purpose.end() + _LOOKED_AT])
    whole = plain(first)
    text = _THIS_TOOL.sub("", whole, count=1)
    return whole if text == whole else text[:1].upper() + text[1:]


def _units(text: str) -> Iterator[str]:
    found = units(text[:_LOOKED_AT], lambda item: plainly(item) >= TELLING)
    return (unit for unit in found if not _FILLER.match(unit))


def _after_first(told: list[str], first: str) -> list[str]:
    """All sentences but the first, and the part of the first that was cut off if it was very long."""
    whole = " ".join(told[0].split()) if told else ""
    if not first.endswith("…") or len(whole) <= len(first):
        return told[1:]
    return [whole[clause_before(whole, len(first) - 1, _SHORTEST_CUT) :].strip(" ,;"), *told[1:]]


def _is_noted(unit: str, notes: Mapping[str, str]) -> bool:
    """Whether a sentence about a parameter adds almost nothing to the parameter's note."""
    words = _long_words(unit)
    return any(
        name in unit and len(words & _long_words(f"{name} {note[:_LOOKED_AT]}")) >= _MOSTLY * len(words)
        for name, note in notes.items()
    )


def _long_words(text: str) -> set[str]:
    return {word for word in _words(text) if len(word) > 3 or word.isdigit()}


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _kept(told: list[str], weight: Callable[[str], int], first: str, room: _Room) -> list[str]:
    """The most important rules that fit, in their order."""
    left = room.letters
    kept: list[tuple[int, str]] = []
    for _, place, rule in sorted(_new_rules(told, weight, first, room.least))[: room.rules]:
        text = rule if len(rule) <= left else cut(rule, left) if left >= _SHORTEST_CUT else ""
        left -= len(text)
        kept.append((place, text))
    return [ended(text) for _, text in sorted(kept) if text]


def _new_rules(told: list[str], weight: Callable[[str], int], first: str, least: int) -> Iterator[tuple[int, int, str]]:
    """The rules that say something new, each with its weight (lower is heavier) and position."""
    opened = _words(first)
    said: set[str] = set()
    for place, unit in enumerate(told):
        weighed = weight(unit)
        text = shortest(unit) if weighed >= least else ""
        new = _words(text) - opened
        is_long_hint = weighed == HINTING and len(text) > _LONGEST_HINT
        says_little = len(new) < 2 and not any(word.isdigit() or not word.isascii() for word in new)
        if is_long_hint or says_little or new <= said:
            continue
        said |= new
        yield -weighed - bool(_EMPHATIC.search(unit)), place, text


def _without_values(unit: str, shown: str) -> str:
    """A sentence without the list of values at its end, if the type contains all of them."""
    return _VALUES.sub(lambda found: "" if _literals(found.group()) <= _declared(shown) else found.group(), unit)


def _is_declared(unit: str, shown: str) -> bool:
    """Whether the parameter's type already states all of a short sentence: its limits, values or default."""
    if len(unit) > LONGEST:
        return False
    declared = _declared(shown)
    named, others = _literals(unit), _words(_LITERAL.sub("", unit)) - _DECLARING
    return bool(declared) and bool(named or others) and named <= declared and others <= declared


def _declared(shown: str) -> set[str]:
    return _literals(shown.partition(": ")[2])


def _literals(text: str) -> set[str]:
    return {literal.strip("'\"`").lower() for literal in _LITERAL.findall(text)}
