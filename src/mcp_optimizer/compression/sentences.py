"""Splits the text of a description into sentences: at full stops, empty lines and list items. Pure, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A full stop that does not end a sentence.
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|fig|st|dr|mr|ms)|\b[A-Z])\.$", re.I)
_LONGEST_ABBREVIATION = 8
_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n\s*\n|\n(?=\s*(?:[-*•#|]|\d+[.)]))|:\s*\n")


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
