"""Recognises deprecated tools, finds their successors, and adjusts the scores of both. Pure.

Ingestion checks each definition, the index stores the outcome, and the ranker moves a deprecated tool below its
successor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.lexical import Floats, Integers
from mcp_optimizer.search.words import name_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAYS_SO = regex(r"\b(?:deprecat(?:ed|ion)|obsolete|superseded by)\b", re.I)
_SENTENCE = regex(r"[^.!?\n]*\b(?:deprecat(?:ed|ion)|obsolete|superseded by)\b[^\n]*?(?:[.!?](?=\s|$)|\n|$)", re.I)
_IDENTIFIER = regex(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|`[^`\s]{1,128}`")
_OF_ANOTHER = regex(
    r"\b(?:lists?|finds?|shows?|returns?|gets?|includ\w+|replaces?|which|if|any|all|are|whether)\b", re.I
)
_OPENING: Final = 400
"""Characters of a description in which a deprecation is recognised; later text is about parameters and values."""

_MOST_NAMED: Final = 8

_BELOW: Final = 0.01
_NO_SUCCESSOR: Final = 0.1
"""Subtracted from a deprecated tool without a successor: equal matches rank above it, clearly worse ones below."""


def sentence(description: str) -> str:
    """The sentence that deprecates the tool; empty for most tools, and for tools that only deal with deprecation."""
    opening = description[:_OPENING]
    # Few tools are deprecated, and searching for words is twenty times faster than searching for sentences.
    if _SAYS_SO.search(opening) is None:
        return ""
    for found in _SENTENCE.finditer(opening):
        text = found.group().strip()
        before = _SAYS_SO.split(text, maxsplit=1)[0]
        # "Lists all deprecated APIs" is about other things; "DEPRECATED: ..." and "This tool is deprecated" are about
        # the tool itself.
        if not _OF_ANOTHER.search(before.replace("This tool is", "").replace("this tool is", "")):
            return _whole(text, description)
    return ""


def _whole(text: str, description: str) -> str:
    """The sentence up to its end in the description, because the opening may end in the middle of it."""
    begin = description.find(text)
    rest = _SENTENCE.match(description, begin)
    return rest.group().strip() if rest else text


def successors(title: str, description: str, annotations: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The name keys of the tools that a deprecated tool points to; None if the tool is not deprecated."""
    said = sentence(description)
    is_marked = annotations.get("deprecated") is True or annotations.get("deprecatedHint") is True
    if not said and not is_marked and not _SAYS_SO.search(title[:_OPENING]):
        return None
    where = f"{title[:_OPENING]} {said} {_after(description, said)}"
    named = [name_key(found.strip("`")) for found in _IDENTIFIER.findall(where)]
    return tuple(dict.fromkeys(name for name in named if name))[:_MOST_NAMED]


def _after(description: str, said: str) -> str:
    """The text after the sentence if it names the successor, as in "Deprecated. Use x instead"."""
    begin = description.find(said) + len(said) if said else 0
    following = description[begin : begin + 160]
    return following if re.search(r"\b(?:use|prefer|instead|replaced)\b", following, re.I) else ""


@dataclass(frozen=True)
class Superseded:
    """The positions of deprecated tools and of their successors; -1 for a tool without one."""

    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @classmethod
    def of(cls, tools: Sequence[tuple[str, str, tuple[str, ...] | None]]) -> Superseded:
        """From server, name, and the name keys that a deprecated tool points to (None if it is not deprecated)."""
        marked = [at for at, (_, _, names) in enumerate(tools) if names is not None]
        servers = {tools[at][0] for at in marked}
        # A deprecated tool cannot be a successor.
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

    def some(self, positions: Integers) -> Superseded:
        """The same for some tools, in ascending order, among which are all or none of each server."""
        is_here = np.isin(self.old, positions)
        old, new = self.old[is_here], self.new[is_here]
        here = np.where(np.isin(new, positions), np.searchsorted(positions, new), -1)
        return Superseded(np.searchsorted(positions, old), here)

    def moved(self, scores: Floats, eligible: NDArray[np.bool_] | None) -> Floats:
        """The scores, with each successor raised to at least its predecessor's score, and the predecessor below it."""
        if not len(self.old):
            return scores
        result = scores.copy()
        has_new = self.new >= 0
        if eligible is not None:
            has_new = has_new & eligible[self.new]
        old, new = self.old[has_new], self.new[has_new]
        np.maximum.at(result, new, scores[old])
        result[old] = np.minimum(result[old], result[new] - np.float32(_BELOW))
        result[self.old[~has_new]] -= np.float32(_NO_SUCCESSOR)
        return result


@cache
def none_superseded() -> Superseded:
    """The value for an index without deprecated tools."""
    return Superseded(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
