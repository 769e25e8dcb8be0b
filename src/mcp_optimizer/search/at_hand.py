"""Recognises requests about this machine, which mean its tools rather than a service that keeps the same things. Pure.

Called by the ranker and the engine. "List the commits of my local repository" means git, although the tool of a service
that keeps repositories may have more of its words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.lexical import WordIndex
from mcp_optimizer.search.words import terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_HAND: Final = 0.12
"""Added to a tool that takes a path, if the request is about this machine."""

_HERE = regex(
    r"\b(?:local(?:ly)?|working (?:copy|tree|directory)|(?:my|this) checkout|on (?:my|this) (?:disk|machine))\b"
    r"|(?<!\S)(?:~/|\.{1,2}/|/(?:home|Users|tmp|var|etc|srv|opt)/|[A-Za-z]:\\)",
    re.I,
)
_COMMITS = regex(r"\bcommits\b|\bcommit history\b|\bcommitted last\b", re.I)
_PLACES = tuple(terms("path paths directory folder"))
_ELSEWHERE = tuple(terms("owner project url bucket account workspace"))


def at_hand(index: WordIndex, query: str) -> NDArray[np.int64]:
    """The tools that take a path and nothing that is elsewhere, if the request is about this machine."""
    if not _HERE.search(query):
        return np.zeros(0, dtype=np.int64)
    takes_path = index.field_scores(_PLACES, "parameters") > 0
    return np.flatnonzero(takes_path & (index.field_scores(_ELSEWHERE, "parameters") == 0))


def worded_as_here(query: str) -> str:
    """The request, with the word that git has for the list of commits: services say "list commits", git says "log"."""
    return f"{query} (git log)" if _HERE.search(query) and _COMMITS.search(query) else query
