"""Finds the sentences of a text that carry a rule for callers, and writes each in its shortest form. Pure.

`signature` shows a description as its first sentence and these rules, and a parameter's note in the same way. A rule is
what a caller would otherwise get wrong: a default, a limit, a format, what is required, refused or ignored. What the
schema declares is not repeated. Only the beginning of a text is read, and what is kept has a maximum length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mcp_optimizer.compression.cues import HINTING, TELLING, first_cue, of_a_description, of_a_note, plainly
from mcp_optimizer.compression.defaults import Said, lift_default
from mcp_optimizer.compression.notes import first_sentence, opening, restates
from mcp_optimizer.compression.sentences import sentences
from mcp_optimizer.search.deprecation import sentence as deprecation

_LOOKED_AT = 4_000
_LONGEST_RULE = 200
_LONG_RULE = 40
_AS_ABOVE = " (As above.)"
_SHORTEST_CUT = 80
_LONGEST_HINT = 120
_MOSTLY = 0.7


@dataclass(frozen=True)
class _Room:
    """How many rules are kept of a text, how long they are together, and how much each must weigh."""

    rules: int
    letters: int
    least: int


_OF_A_DESCRIPTION = _Room(rules=3, letters=255, least=TELLING)
_OF_A_CALL_WITHOUT_ARGUMENTS = _Room(rules=2, letters=150, least=TELLING)
_OF_A_NESTED_NOTE = _Room(rules=1, letters=60, least=TELLING)
_FEW = 6
_OF_ALL_NOTES = 1_600
"""Letters for the rules of all parameters of a tool that has many."""


def _of_a_note(parameters: int) -> _Room:
    """The more parameters a tool has, the less is kept of each note."""
    if parameters <= _FEW:
        return _Room(rules=3, letters=190, least=HINTING)
    return _Room(rules=3, letters=min(190, max(120, _OF_ALL_NOTES // parameters)), least=TELLING)


_FENCE = re.compile(r"^[ \t]*(?:```|~~~)")
_SKIPPED = re.compile(
    r"^[\W_]{0,8}(?:returns?|return values?|outputs?|responses?|examples?|samples?|usage examples?|see also|use cases?"
    r"|when to use|features|key features|best practices|error handling|next steps)\b[^.:\n]{0,40}(?::|$)",
    re.I,
)
_HEADING = re.compile(r"^(?:#|[\W_]{0,8}[A-Z][^.!?:\n]{0,60}:[ \t*]*$|[A-Z][\w ]{2,30}: )")
_OF_VALUES = re.compile(
    r"\b(?:options?|values?|types?|formats?|modes?|models?|one of|accept\w{0,3}|available|supported|patterns?)\b", re.I
)
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]")

_MARKS = re.compile(r"^(?:[\s#*•|>_–—✅❌❗⚠️🚨📋🔴💡-]|\d{1,2}[.)]\s)+")
_EMPHASIS = re.compile(r"\*\*(?=\w[^*\n]{0,100}\*\*)|(?<=[\w.:!?)])\*\*|`(\w[\w./-]{0,80})`")
_LINK = re.compile(r"\[([^\[\]]{1,80})\]\([^()\s]{1,300}\)")
_EXAMPLES = re.compile(
    r"(?<=[( ])((?:e\.g\.|for example|such as),?:?) (['\"`]?)([\w./:@+-]{1,60})\2((?:,? (?:or |and )?\2[\w./:@+-]{1,60}\2){1,20})(?=\))",
    re.I,
)
_FOR_EXAMPLE = re.compile(r"(?<=[(,] )(?:for example|e\.g\.)[,:]? |(?<=\()(?:for example|e\.g\.?)[,:]? ", re.I)
_OPTIONAL = re.compile(r"\s?\((?:optional|required)\)", re.I)
_LETTERS = re.compile(r"[^\W\d]+")
_LABEL = re.compile(
    r"^(?:please note(?: that)?|note(?: that)?|notes|important(?: note)?|warning|caution|critical|attention|tip|hint|nb"
    r"|optional|required|mandatory|description)[ ]?(?:[:!,.]| -| –| —)\s*|^note that |^optional (?=\w)",
    re.I,
)
_SUBJECT = re.compile(
    r"^(?:this (?:tool|parameter|param|field|value|option|argument|operation|command) (?=(?:is|must|should|can|will|does|only|requires)\b)"
    r"|it (?=(?:is|must|should|can|will|only)\b)|please |be sure to |make sure (?:to |that )?|you (?=must|can|should|may|need)"
    r"|the (?:value|parameter) (?=must|should))",
    re.I,
)
_COPULA = re.compile(r"^is (?=\w)", re.I)
_FILLER = re.compile(
    r"^\W*(?:\w[\w.-]*\W{1,3}(?:parameter |field )?(?:is )?)?(?:optional|required|mandatory)\W*$", re.I
)
_EXAMPLE = re.compile(r"\s?\((?:e\.g\.?|for example|such as|ex)[,:]?[^()]{0,300}\)", re.I)
_BRACKETS = re.compile(r"\s?\(([^()\n]{1,60})\)")
_THIS_TOOL = re.compile(
    r"^(?:purpose|description|summary|overview): |^(?:this|the) (?:tool|function|endpoint|operation|method|api) (?:is (?:used|designed) to |(?:allows|enables) (?:you|users) to |lets (?:you|users) "
    r"|can be used to |will |helps )?(?=[a-z]{3})(?!is |was |has |can |must |should |requires? |does |only )|^use this (?:tool )?(?:to |for )(?=[a-z])",
    re.I,
)
_SUCCESSOR = re.compile(r"\b(?:use|replaced by|instead)\b", re.I)
_ARTICLE = re.compile(r"^(?:(?:optional|required)[:,]? )?(?:(?:the|an?) )?(?=\w{2})(\w)", re.I)
_WARNING = re.compile(r"\W{0,4}(?:security|important|warning|caution|deprecated|critical)\b", re.I)
_WORD = re.compile(r"\w+")
_EMPHATIC = re.compile(r"\b(?:MUST|NOT|ONLY|NEVER|ALWAYS|REQUIRES?|REQUIRED|EXACTLY)\b")
_DECLARING = frozenset(
    "must be one of valid values value are is the can could should or and default defaults to between from in range "
    "maximum minimum max min limit a an allowed options option possible supported accepts either up at most least it "
    "this available choose number types type".split()
)
_LITERAL = re.compile(r"\d+(?:\.\d+)?|'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`|\b(?:true|false)\b", re.I)
_REASON = re.compile(
    r"(?<=[\w)'\"`]{3})(?:,| [-–—])? (?:because|since (?:the|it|this|they)|to (?:avoid|prevent|reduce|ensure|save|minimize)) [^.;]{1,200}\.?$",
    re.I,
)
_NEW_CLAUSE = re.compile(r"; |: | [-–—] |\. ")
_CLAUSE = re.compile(r"[,;:] |\.\s| [-–—] | \(")


def described(description: str, notes: Mapping[str, str] = MappingProxyType({})) -> str:
    """A tool's description: its first sentence, the sentence that deprecates it, and the rules of the rest.

    `notes` are the notes on the parameters: what they say is not repeated.
    """
    first = _plain_opening(description)
    units = list(_units(description[:_LOOKED_AT]))
    rest = [*_tail(units[0], first_sentence(description)), *units[1:]] if units else []
    if deprecation(description):
        successor = next((unit for unit in rest[:2] if _SUCCESSOR.search(unit)), "")
        first = f"{first} {_shortest(successor)}".strip() if successor not in first else first
    if _WARNING.match(first):
        # What the tool does is said after the warning.
        purpose = first_sentence(description.partition("\n\n")[2])
        first = f"{_ended(first)} {purpose}".strip()
    told = [unit for unit in rest if not _is_noted(unit, notes)]
    kept = _kept(
        told,
        lambda unit: of_a_description(unit, notes),
        first,
        _OF_A_DESCRIPTION if notes else _OF_A_CALL_WITHOUT_ARGUMENTS,
    )
    return " ".join([_ended(first), *kept]) if kept else first


def _plain_opening(description: str) -> str:
    first = _FOR_EXAMPLE.sub("e.g. ", _EMPHASIS.sub(r"\1", opening(description)))
    plain = _THIS_TOOL.sub("", first, count=1)
    return first if plain == first else plain[:1].upper() + plain[1:]


def _is_noted(unit: str, notes: Mapping[str, str]) -> bool:
    """Whether a sentence about a parameter says hardly more than the parameter's note."""
    words = _long_words(unit)
    for name, note in notes.items():
        if name in unit and len(words & _long_words(f"{name} {note[:_LOOKED_AT]}")) >= _MOSTLY * len(words):
            return True
    return False


def _long_words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text) if len(word) > 3 or word.isdigit()}


@dataclass(frozen=True)
class Place:
    """Where a parameter stands: its tool's name, how many parameters that has, and whether an object is around it."""

    tool: str = ""
    parameters: int = 1
    is_nested: bool = False


def noted(note: str, name: str, shown: str, place: Place = Place()) -> Said:
    """A parameter's note: its first sentence unless it restates the name, its rules, and its default.

    `shown` is how the signature writes the parameter: what it says is not repeated.
    """
    said = lift_default(note[:_LOOKED_AT], shown)
    declared = _BRACKETS.sub(lambda found: "" if _is_declared(found.group(1), shown) else found.group(), said.text)
    said = Said(declared, said.default)
    units = [unit for unit in _units(said.text) if not _is_declared(unit, shown)]
    first = first_sentence(_without_filler(units[0])) if units else ""
    rest = [*_tail(units[0], first), *units[1:]] if units else []
    first = _ARTICLE.sub(lambda found: found.group(1).upper(), first, count=1)
    if restates(first, name, place.tool):
        first = ""
    kept = _kept(rest, of_a_note, first, _OF_A_NESTED_NOTE if place.is_nested else _of_a_note(place.parameters))
    text = " ".join([_ended(first), *kept] if first and kept else [first, *kept]).strip()
    return Said(text.removesuffix("."), said.default)


def _tail(unit: str, first: str) -> list[str]:
    """What a very long first sentence lost, from the clause in which it was cut."""
    whole = " ".join(unit.split())
    if not first.endswith("…") or len(whole) <= len(first):
        return []
    cut = len(first) - 1
    begin = max(
        (end for match in _CLAUSE.finditer(whole, cut - _SHORTEST_CUT) if (end := match.end()) <= cut), default=cut
    )
    return [whole[begin:].strip(" ,;")]


def once(lines: list[str], mark: str) -> list[str]:
    """The lines of a signature, whose notes begin after the mark, without long rules that an earlier line has said word for word."""
    said: set[str] = set()
    written = []
    for line in lines:
        first, *rules = sentences(line) if mark in line else [line]
        written.append("".join([first, *(_AS_ABOVE if rule.strip(" .") in said else rule for rule in rules)]).rstrip())
        said.update(text for rule in rules if len(text := rule.strip(" .")) > _LONG_RULE)
    return written


def _units(text: str) -> Iterator[str]:
    """Sentences and list items, without examples and without what is said about results; a list of values is one."""
    heading = ""
    for sentence in sentences("\n".join(_prose(text))):
        unit = sentence.strip()
        if _FILLER.match(unit):
            continue
        if heading and _BULLET.match(unit) and _belongs(unit, heading):
            heading += f"{'' if heading.endswith(':') else ';'} {_MARKS.sub('', unit).rstrip('.')}"
            continue
        if heading:
            yield heading
        heading = unit if unit.endswith(":") else ""
        if not heading:
            yield unit
    if heading:
        yield heading


def _belongs(item: str, heading: str) -> bool:
    """Whether a list item is read with its heading, and not as a rule of its own."""
    if len(heading) + len(item) > _LONGEST_RULE:
        return False
    return plainly(item) < TELLING or _OF_VALUES.search(heading) is not None


def _prose(text: str) -> Iterator[str]:
    """The lines outside code and outside sections that hold examples or describe results."""
    fenced, after_blank = False, False
    skipped: int | None = None
    for number, line in enumerate(text.split("\n")):
        indent = len(line) - len(line.lstrip())
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            continue
        elif number and _SKIPPED.match(line):
            skipped, after_blank = indent, False
        elif not line.strip():
            after_blank = True
            yield line
        elif skipped is None or (
            indent <= skipped and (_HEADING.match(line) or (after_blank and line.lstrip()[0].isalpha()))
        ):
            skipped, after_blank = None, False
            yield line


def _kept(units: list[str], weight: Callable[[str], int], first: str, room: _Room) -> list[str]:
    """The weightiest rules that fit, in their order."""
    known = {word.lower() for word in _WORD.findall(first)}
    rules: list[tuple[int, int, str]] = []
    for place, unit in enumerate(units):
        if (weighed := weight(unit)) < room.least:
            continue
        text = _shortest(unit)
        words = {word.lower() for word in _WORD.findall(text)}
        new = words - known
        if weighed == HINTING and len(text) > _LONGEST_HINT:
            continue
        if len(new) > 1 or any(word.isdigit() or not word.isascii() for word in new):
            rules.append((-weighed - bool(_EMPHATIC.search(unit)), place, text))
            known |= words
    left = room.letters
    kept: list[tuple[int, str]] = []
    for _, place, text in sorted(rules)[: room.rules]:
        if len(text) > left:
            text = _cut(text, left) if left >= _SHORTEST_CUT else ""
        if text:
            kept.append((place, text))
            left -= len(text)
    return [_ended(text) for _, text in sorted(kept)]


def _is_declared(unit: str, shown: str) -> bool:
    """Whether all that a short sentence says is in the parameter's type: its limits, values or default."""
    if len(unit) > _LONGEST_RULE:
        return False
    declared = {literal.strip("'\"`").lower() for literal in _LITERAL.findall(shown.partition(": ")[2])}
    named = {literal.strip("'\"`").lower() for literal in _LITERAL.findall(unit)}
    others = {word.lower() for word in _WORD.findall(_LITERAL.sub("", unit))} - _DECLARING
    return bool(declared) and bool(named or others) and named <= declared and others <= declared


def _shortest(unit: str) -> str:
    """A rule without marks, labels and filler; cut after a clause if it is very long."""
    text = _REASON.sub("", " ".join(_without_filler(unit).split()).rstrip(" :;,"))
    if len(text) > _LONGEST_RULE:
        text = _EXAMPLE.sub("", text)
    return text if len(text) <= _LONGEST_RULE else _cut(text, _LONGEST_RULE)


def _without_filler(unit: str) -> str:
    whole = _LINK.sub(r"\1", _EMPHASIS.sub(r"\1", _MARKS.sub("", unit.strip())))
    whole = _EXAMPLES.sub(_one_example, _FOR_EXAMPLE.sub("e.g. ", _OPTIONAL.sub("", whole)))
    text = whole
    for pattern in (_LABEL, _MARKS, _LABEL, _SUBJECT, _COPULA):
        text = pattern.sub("", text, count=1)
    return text if text == whole else text[:1].upper() + text[1:]


def _one_example(found: re.Match[str]) -> str:
    """The first of several examples of one form."""
    lead, mark, first, others = found.groups()
    forms = {_form(other.strip(mark or None)) for other in re.split(r",? (?:or |and )?", others) if other}
    return f"{lead.rstrip(',:')} {mark}{first}{mark}" if forms <= {_form(first)} else found.group()


def _form(example: str) -> str:
    return re.sub(r"\d+", "9", _LETTERS.sub("a", example))


def _cut(text: str, most: int) -> str:
    """At most so many letters around the word that makes it a rule, from clause to clause."""
    cue = first_cue(text)
    starts = [match.end() for match in _NEW_CLAUSE.finditer(text, 0, cue)]
    begin = starts[-1] if starts and cue >= most // 2 else 0
    end = max((found for match in _CLAUSE.finditer(text, cue) if (found := match.end()) <= begin + most), default=0)
    if end <= begin + most // 3:
        end = begin + len(text[begin : begin + most].rsplit(" ", 1)[0])
    return text[begin:end].rstrip(" ,;:(-–—") + ("…" if end < len(text) else "")


def _ended(text: str) -> str:
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."
