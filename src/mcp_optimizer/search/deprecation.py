"""Tools that their servers deprecate: what says so, which tool is to be used instead, and how ranks move. Pure.

Ingestion asks what a definition says, the index keeps it, the ranker moves such a tool below what it points to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.words import name_key

_SAYS_SO = re.compile(r"\b(?:deprecat(?:ed|ion)|obsolete|superseded by)\b", re.I)
_SENTENCE = re.compile(r"[^.!?\n]*\b(?:deprecat(?:ed|ion)|obsolete|superseded by)\b[^\n]*?(?:[.!?](?=\s|$)|\n|$)", re.I)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|`[^`\s]{1,128}`")
_OF_ANOTHER = re.compile(
    r"\b(?:lists?|finds?|shows?|returns?|gets?|includ\w+|replaces?|which|if|any|all|are|whether)\b", re.I
)
_OPENING: Final = 400
"""Letters of a description that may deprecate the tool; further down it speaks of parameters and values."""

_MOST_NAMED: Final = 8

_BELOW: Final = np.float32(0.01)
_NO_SUCCESSOR: Final = np.float32(0.1)
"""What a deprecated tool loses that points nowhere: a better match still stands below it, an equal one above."""


def sentence(description: str) -> str:
    """The sentence that deprecates the tool; none for most tools, and for those that only speak of deprecation."""
    opening = description[:_OPENING]
    for found in _SENTENCE.finditer(opening):
        text = found.group().strip()
        before = _SAYS_SO.split(text, maxsplit=1)[0]
        # "Lists all deprecated APIs" is about others; "DEPRECATED: ...", "This tool is deprecated" is about itself.
        if not _OF_ANOTHER.search(before.replace("This tool is", "").replace("this tool is", "")):
            return _whole(text, description)
    return ""


def _whole(text: str, description: str) -> str:
    """The sentence as far as the description has it: the opening may have ended within it."""
    begin = description.find(text)
    rest = _SENTENCE.match(description, begin)
    return rest.group().strip() if rest else text


def successors(title: str, description: str, annotations: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names that a deprecated tool points to, as they key; None if the tool is not deprecated."""
    said = sentence(description)
    is_marked = annotations.get("deprecated") is True or annotations.get("deprecatedHint") is True
    if not said and not is_marked and not _SAYS_SO.search(title[:_OPENING]):
        return None
    where = f"{title[:_OPENING]} {said} {_after(description, said)}"
    named = [name_key(found.strip("`")) for found in _IDENTIFIER.findall(where)]
    return tuple(dict.fromkeys(name for name in named if name))[:_MOST_NAMED]


def _after(description: str, said: str) -> str:
    """What follows the sentence, where a second one names the successor: "Deprecated. Use x instead."""
    begin = description.find(said) + len(said) if said else 0
    following = description[begin : begin + 160]
    return following if re.search(r"\b(?:use|prefer|instead|replaced)\b", following, re.I) else ""


@dataclass(frozen=True)
class Superseded:
    """Positions of deprecated tools, and of the tool that each points to; -1 where it points nowhere."""

    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @classmethod
    def of(cls, tools: Sequence[tuple[str, str, tuple[str, ...] | None]]) -> Superseded:
        """From server, name and the names a deprecated tool points to."""
        marked = [at for at, (_, _, names) in enumerate(tools) if names is not None]
        servers = {tools[at][0] for at in marked}
        # A tool that is deprecated itself takes nobody's place.
        there = {
            (server, name_key(name)): at
            for at, (server, name, names) in enumerate(tools)
            if server in servers and names is None
        }
        news = [
            next((there[tools[at][0], name] for name in tools[at][2] or () if (tools[at][0], name) in there), -1)
            for at in marked
        ]
        return cls(np.array(marked, dtype=np.int64), np.array(news, dtype=np.int64))

    def moved(self, scores: Floats, eligible: NDArray[np.bool_] | None) -> Floats:
        """The scores, each successor with its predecessor's where that is higher, and the predecessor below it."""
        if not len(self.old):
            return scores
        result = scores.copy()
        has_new = self.new >= 0
        if eligible is not None:
            has_new = has_new & eligible[self.new]
        old, new = self.old[has_new], self.new[has_new]
        np.maximum.at(result, new, scores[old])
        result[old] = np.minimum(result[old], result[new] - _BELOW)
        result[self.old[~has_new]] -= _NO_SUCCESSOR
        return result


NONE_SUPERSEDED: Final = Superseded(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
