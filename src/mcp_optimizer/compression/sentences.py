"""Splits the text of a description into sentences and units, and shortens sentences. Pure.

A shortened sentence has no labels, filler or repeated examples. Any text is split in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mcp_optimizer.compression.cues import first_cue
from mcp_optimizer.runtime.patterns import regex

# A full stop that does not end a sentence.
_ABBREVIATION = regex(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|fig|st|dr|mr|ms)|\b[A-Z])\.$", re.I)
_LONGEST_ABBREVIATION = 8
_END = regex(r"[.!?](?=\s|$)|[。！？]|\n\s*\n|\n(?=\s*(?:[-*•#|]|\d+[.)]))|:\s*\n")

_FENCE = regex(r"^[ \t]*(?:```|~~~)")
_SKIPPED = regex(
    r"^[\W_]{0,8}(?:returns?|return values?|outputs?|responses?|examples?|samples?|usage examples?|see also|use cases?"
    r"|when to use|features|key features|best practices|error handling|next steps)\b[^.:\n]{0,40}(?::|$)",
    re.I,
)
_HEADING = regex(r"^(?:#|[\W_]{0,8}[A-Z][^.!?:\n]{0,60}:[ \t*]*$|[A-Z][\w ]{2,30}: )")
_ITEM = regex(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]")
_ITEM_MARK = regex(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+")
_OF_VALUES = regex(
    r"\b(?:options?|values?|types?|formats?|modes?|models?|one of|accept\w{0,3}|available|supported|patterns?)\b", re.I
)
_LONGEST_LIST = 200


def sentences(text: str) -> Iterator[str]:
    """The sentences in order, with their punctuation and blanks; together they are the text."""
    begin = 0
    for end in _END.finditer(text):
        candidate = text[begin : end.end()]
        if candidate.strip() and not _ABBREVIATION.search(candidate[-_LONGEST_ABBREVIATION:]):
            yield candidate
            begin = end.end()
    if text[begin:].strip():
        yield text[begin:]


def units(text: str, is_rule: Callable[[str], bool]) -> Iterator[str]:
    """Sentences and list items, without examples and without statements about results.

    List items that are no rules of their own, and lists of values, form one unit with their heading.
    """
    heading = ""
    for sentence in sentences("\n".join(_prose(text))):
        unit = sentence.strip()
        if heading and _ITEM.match(unit) and _belongs(unit, heading, is_rule):
            heading += f"{'' if heading.endswith(':') else ';'} {_ITEM_MARK.sub('', unit).rstrip('.')}"
            continue
        if heading:
            yield heading
        heading = unit if unit.endswith(":") else ""
        if not heading:
            yield unit
    if heading:
        yield heading


def _belongs(item: str, heading: str, is_rule: Callable[[str], bool]) -> bool:
    """Whether a list item must be read with its heading."""
    fits = len(heading) + len(item) <= _LONGEST_LIST
    return fits and (_OF_VALUES.search(heading) is not None or not is_rule(item))


def _prose(text: str) -> Iterator[str]:
    """The lines outside code and outside sections with examples or results."""
    fenced, after_blank = False, False
    skipped: int | None = None
    for number, line in enumerate(text.split("\n")):
        said = line.lstrip()
        indent = len(line) - len(said)
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            continue
        elif number and _SKIPPED.match(line):
            skipped, after_blank = indent, False
        elif not said:
            after_blank = True
            yield line
        elif skipped is None or (indent <= skipped and _ends_section(line, said, after_blank)):
            skipped, after_blank = None, False
            yield line


def _ends_section(line: str, said: str, after_blank: bool) -> bool:
    return _HEADING.match(line) is not None or (after_blank and said[0].isalpha())


LONGEST = 200
"""Letters of one rule; a longer one is cut after a clause."""

_MARKS = regex(r"^(?:[\s#*•|>_–—✅❌❗⚠️🚨📋🔴💡-]|\d{1,2}[.)]\s)+")
_EMPHASIS = regex(r"\*\*(?=\w[^*\n]{0,100}\*\*)|(?<=[\w.:!?)])\*\*|`(\w[\w./-]{0,80})`")
_LINK = regex(r"\[([^\[\]]{1,80})\]\([^()\s]{1,300}\)")
_FOR_EXAMPLE = regex(r"(?<=[(,] )(?:for example|e\.g\.)[,:]? |(?<=\()(?:for example|e\.g\.?)[,:]? ", re.I)
_EXAMPLES = regex(
    r"(?<=[( ])(e\.g\.|such as) (['\"`]?)([\w./:@+-]{1,60})\2((?:,? (?:or |and )?\2[\w./:@+-]{1,60}\2){1,20})(?=\))",
    re.I,
)
_BETWEEN = regex(r",? (?:or |and )?")
_IN_BRACKETS = regex(r"\s?\((?:e\.g\.?|for example|such as|ex)[,:]?[^()]{0,300}\)", re.I)
_OPTIONAL = regex(r"\s?\((?:optional|required)\)", re.I)
_LABEL = regex(
    r"^(?:please note(?: that)?|note(?: that)?|notes|important(?: note)?|warning|caution|critical|attention|tip|hint|nb"
    r"|optional|required|mandatory|description) ?(?:[:!,.]| [-–—])\s*|^note that |^optional (?=\w)",
    re.I,
)
_SUBJECT = regex(
    r"^(?:this (?:tool|parameter|param|field|value|option|argument|operation|command) "
    r"(?=(?:is|must|should|can|will|does|only|requires)\b)|it (?=(?:is|must|should|can|will|only)\b)|please "
    r"|be sure to |make sure (?:to |that )?|you (?=must|can|should|may|need)|the (?:value|parameter) (?=must|should))",
    re.I,
)
_IS = regex(r"^is (?=\w)", re.I)
_REASON = regex(
    r"(?<=[\w)'\"`]{3})(?:,| [-–—])? (?:because|since (?:the|it|this|they)|to (?:avoid|prevent|reduce|ensure|save"
    r"|minimize)) [^.;]{1,200}\.?$",
    re.I,
)
_CLAUSE_BEGIN = regex(r"; |: | [-–—] |\. ")
_CLAUSE_END = regex(r"[,;:] |\.\s| [-–—] | \(")
_LETTERS = regex(r"[^\W\d]+")
_DIGITS = regex(r"\d+")


def shortest(sentence: str) -> str:
    """A rule reduced to what its caller needs; cut after a clause if it is very long."""
    text = _REASON.sub("", " ".join(without_filler(sentence).split()).rstrip(" :;,"))
    if len(text) > LONGEST:
        text = _IN_BRACKETS.sub("", text)
    return text if len(text) <= LONGEST else cut(text, LONGEST)


def without_filler(sentence: str) -> str:
    """The sentence without markup, labels ("Note:", "Optional.") and a subject that is obvious."""
    whole = _OPTIONAL.sub("", _LINK.sub(r"\1", plain(_MARKS.sub("", sentence.strip()))))
    whole = _EXAMPLES.sub(_one_example, whole)
    text = whole
    for pattern in (_LABEL, _MARKS, _LABEL, _SUBJECT, _IS):
        text = pattern.sub("", text, count=1)
    return text if text == whole else text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """The text without emphasis, and with "e.g." for "for example"."""
    return _FOR_EXAMPLE.sub("e.g. ", _EMPHASIS.sub(r"\1", text))


def cut(text: str, most: int) -> str:
    """At most `most` letters around the word that makes the text a rule, from clause to clause."""
    cue = first_cue(text)
    begins = [match.end() for match in _CLAUSE_BEGIN.finditer(text, 0, cue)]
    begin = begins[-1] if begins and cue >= most // 2 else 0
    ends = (match.end() for match in _CLAUSE_END.finditer(text, cue))
    end = max((end for end in ends if end <= begin + most), default=0)
    if end <= begin + most // 3:
        end = begin + len(text[begin : begin + most].rsplit(" ", 1)[0])
    return text[begin:end].rstrip(" ,;:(-–—") + ("…" if end < len(text) else "")


def clause_before(text: str, position: int, most: int) -> int:
    """The start of the clause that contains a position; the position itself if the start is too far back."""
    ends = (match.end() for match in _CLAUSE_END.finditer(text, max(position - most, 0), position))
    return max(ends, default=position)


def ended(text: str) -> str:
    """The text with a full stop, unless it ends in punctuation."""
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."


def _one_example(found: re.Match[str]) -> str:
    """The first of several examples of one form."""
    lead, mark, first, others = found.groups()
    forms = {_form(other.strip(mark or None)) for other in _BETWEEN.split(others) if other}
    return f"{lead} {mark}{first}{mark}" if forms <= {_form(first)} else found.group()


def _form(example: str) -> str:
    return _DIGITS.sub("9", _LETTERS.sub("a", example))
