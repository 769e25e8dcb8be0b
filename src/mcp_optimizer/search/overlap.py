"""Finds what a request may mean as well where servers overlap: "create an issue" is a tool of GitHub, Jira and Linear.

A counterpart is the tool of another server with the same action on the same thing, near the first in the ranking. A
request that names a server or a product means that one alone. Pure; called by the engine for the first tools of a
ranking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mcp_optimizer.search.actions import actions
from mcp_optimizer.search.words import terms

LOOKED_AT: Final = 60
"""Number of first tools among which counterparts are looked for."""

_BEHIND: Final = 0.3
"""How far a counterpart's score may be behind the first tool's."""

_NEAR: Final = 0.06
"""How far it may be behind if its name says another thing."""


@dataclass(frozen=True)
class RankedTool:
    """A tool of a ranking."""

    position: int
    server: int
    """The server's number."""
    name: str
    """The words of its name."""
    server_name: str
    score: float


def counterparts(query: str, ranked: Iterable[RankedTool]) -> tuple[int, ...]:
    """The positions of the tools of further servers that the request may mean, best first, one of each server. Takes
    tools of the ranking only as far as they may be meant.
    """
    following = iter(ranked)
    if (first := next(following, None)) is None:
        return ()
    asked = frozenset(terms(query))
    own = _said(first.name, first.server_name)
    met = asked & own.terms
    near = 0.0 if asked & _terms(first.server_name) else _NEAR
    found: dict[int, int] = {}
    for tool in following:
        behind = first.score - tool.score
        if behind > _BEHIND:
            break
        if tool.server == first.server or tool.server in found:
            continue
        other = _said(tool.name, tool.server_name)
        says_the_same = met <= other.terms and bool(other.things & (own.things | asked))
        if _may_do_the_same(own, other) and (says_the_same or behind <= near):
            found[tool.server] = tool.position
    return tuple(found.values())


@dataclass(frozen=True)
class _Said:
    """What a tool's name says: its action, and what the action is done to."""

    actions: int
    things: frozenset[str]
    """The terms of the name without its action and without its server."""
    terms: frozenset[str]
    """The same with the server's."""


@lru_cache(maxsize=10_000)
def _said(name: str, server_name: str) -> _Said:
    said, server = name.split(), _terms(server_name)
    # The last word is a thing even if it could be an action: logs, comment, file.
    verb = next((word for word in said[:-1] if actions([word])), "")
    things = frozenset(term for word in said if word != verb for term in terms(word))
    return _Said(actions([verb]), things - server, things | server)


def _terms(name: str) -> frozenset[str]:
    return frozenset(terms(name))


def _may_do_the_same(one: _Said, other: _Said) -> bool:
    return not one.actions or not other.actions or bool(one.actions & other.actions)
