"""Recognises requests about this machine, and general-purpose tools (web search, code, files), which are returned where
no special tool fits. Pure.

Called by the engine. They are recognised by meaning and by their words, not by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.lexical import Floats, WordIndex
from mcp_optimizer.search.words import terms

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Recognises requests about this machine, which mean its tools rather than a service that keeps the same things.

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


KINDS: Final = {
    "search the web for any question and get current results": "web internet online google page",
    "fetch the content of a web page by its url": "url webpage website page web",
    "open a url in the browser": "browser",
    "run python code and return the output": "code python script cell sandbox",
    "run a shell command on the machine": "command shell bash terminal",
    "read the contents of a file": "file",
    "write text to a file": "file",
    "find files by name in a directory": "file directory folder",
    "run a sql query against the database": "sql",
    "remember a fact about the user for later": "memory remember knowledge note observation entity",
    "add what was learned about a person to the knowledge graph": "memory knowledge observation entity",
    "search stored memories and notes": "memory remember knowledge note entity",
    "solve an equation or evaluate a mathematical expression": "math equation expression calculate arithmetic",
}
"""Descriptions of general-purpose kinds of tools, each with words of which such a tool must contain at least one."""

MOST: Final = 3
"""Maximum general-purpose tools in one search result."""

LEAST_COSINE: Final = 0.1
"""Minimum cosine with the request for a general-purpose tool to be returned."""


@dataclass(frozen=True)
class Generality:
    """Each tool's highest cosine with a kind of general-purpose tool; zero for kinds whose words it lacks."""

    nearness: Floats
    to_web_search: Floats
    """The same for the first kind alone, a search of the web."""

    @classmethod
    def of(cls, index: WordIndex, cosines: Callable[[list[str]], Floats]) -> Generality:
        """`cosines` returns texts x tools."""
        rows = cosines(list(KINDS))
        has_words = np.stack([index.field_scores(terms(asked), "all") > 0 for asked in KINDS.values()])
        near = np.where(has_words, rows, 0.0).astype(np.float32)
        return cls(near.max(axis=0), near[0])

    def some(self, positions: Sequence[int]) -> Generality:
        """The same for some of the tools."""
        return Generality(self.nearness[list(positions)], self.to_web_search[list(positions)])

    def tools(self, threshold: float) -> NDArray[np.bool_]:
        """Which tools are general-purpose."""
        near: NDArray[np.bool_] = self.nearness >= threshold
        return near
