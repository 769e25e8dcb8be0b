"""Splits the text of a description: into sentences, and into the units in which rules stand. Pure, in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# A full stop that does not end a sentence.
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|fig|st|dr|mr|ms)|\b[A-Z])\.$", re.I)
_LONGEST_ABBREVIATION = 8
_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n\s*\n|\n(?=\s*(?:[-*•#|]|\d+[.)]))|:\s*\n")

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)")
_SKIPPED = re.compile(
    r"^[\W_]{0,8}(?:returns?|return values?|outputs?|responses?|examples?|samples?|usage examples?|see also|use cases?"
    r"|when to use|features|key features|best practices|error handling|next steps)\b[^.:\n]{0,40}(?::|$)",
    re.I,
)
_HEADING = re.compile(r"^(?:#|[\W_]{0,8}[A-Z][^.!?:\n]{0,60}:[ \t*]*$|[A-Z][\w ]{2,30}: )")
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]")
_ITEM_MARK = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+")
_OF_VALUES = re.compile(
    r"\b(?:options?|values?|types?|formats?|modes?|models?|one of|accept\w{0,3}|available|supported|patterns?)\b", re.I
)
_LONGEST_LIST = 200


def sentences(text: str) -> Iterator[str]:
    """The sentences with their marks and blanks, in order; together they are the text."""
    begin = 0
    for end in _END.finditer(text):
        candidate = text[begin : end.end()]
        if candidate.strip() and not _ABBREVIATION.search(candidate[-_LONGEST_ABBREVIATION:]):
            yield candidate
            begin = end.end()
    if text[begin:].strip():
        yield text[begin:]


def units(text: str, is_rule: Callable[[str], bool]) -> Iterator[str]:
    """Sentences and list items, without examples and without what is said about results.

    Items that are no rules of their own, and lists of values, are one unit with their heading.
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
    """Whether a list item is read with its heading."""
    fits = len(heading) + len(item) <= _LONGEST_LIST
    return fits and (_OF_VALUES.search(heading) is not None or not is_rule(item))


def _prose(text: str) -> Iterator[str]:
    """The lines outside code and outside sections that hold examples or describe results."""
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
