"""Ranks tools for registration, by readable rules. Pure.

1. pinned tools; 2. tools that were used, most used first; 3. basic verbs over the main nouns of each server, servers
taking turns; 4. the rest, smallest first. Ties are broken by server and name, so the same catalog always gives the same
list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.search.words import words

BASIC_VERBS = ("list", "get", "create", "update", "move", "search", "health")
"""In order of importance."""

_LIKE_BASIC = {
    "read": "get",
    "fetch": "get",
    "show": "get",
    "describe": "get",
    "find": "search",
    "query": "search",
    "add": "create",
    "write": "create",
    "edit": "update",
    "set": "update",
    "ping": "health",
    "status": "health",
}
_MAIN_NOUNS = 6


class ProfileName(StrEnum):
    """How much of the catalog is registered directly."""

    MINIMAL = "Minimal"
    STANDARD = "Standard"
    FULL = "Full"


class Reason(StrEnum):
    """Why a tool has its rank."""

    PINNED = "pinned in the settings"
    USED = "used before"
    BASIC = "basic verb over a main noun of its server"
    WEIGHT = "by token weight"


@dataclass(frozen=True)
class Candidate:
    """A tool to be ranked: its public name, its own, its cost when registered, how often it was used."""

    name: str
    server: str
    own_name: str
    tokens: int
    uses: int = 0


@dataclass(frozen=True)
class Ranked:
    """A tool with its rank and the reason for it."""

    candidate: Candidate
    reason: Reason


def rank(candidates: Sequence[Candidate], pinned: Iterable[str] = ()) -> list[Ranked]:
    """Every tool once, highest rank first. `pinned` are public names."""
    wanted = {name: place for place, name in enumerate(pinned)}
    basic = _basic_turns(candidates)
    keyed = []
    for candidate in candidates:
        pin = wanted.get(candidate.name)
        identity = (candidate.server, candidate.name)
        key: tuple[int, int, tuple[str, str]]
        if pin is not None:
            key, reason = (0, pin, identity), Reason.PINNED
        elif candidate.uses:
            key, reason = (1, -candidate.uses, identity), Reason.USED
        elif identity in basic:
            key, reason = (2, basic[identity], identity), Reason.BASIC
        else:
            key, reason = (3, candidate.tokens, identity), Reason.WEIGHT
        keyed.append((key, Ranked(candidate, reason)))
    return [ranked for _, ranked in sorted(keyed, key=lambda pair: pair[0])]


def _basic_turns(candidates: Sequence[Candidate]) -> Mapping[tuple[str, str], int]:
    """The turn of each basic tool: the first of every server, then the second of every server."""
    by_server: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_server[candidate.server].append(candidate)
    turns: dict[tuple[str, str], int] = {}
    for server, tools in by_server.items():
        nouns = _main_nouns(tools)
        basics = [(key, tool) for tool in tools if (key := _basic_key(tool, nouns)) is not None]
        for turn, (_, tool) in enumerate(sorted(basics, key=lambda pair: (pair[0], pair[1].name))):
            turns[(server, tool.name)] = turn
    return turns


def _main_nouns(tools: Sequence[Candidate]) -> list[str]:
    """What most of a server's tools are about."""
    counts = Counter(noun for tool in tools for noun in set(_nouns(tool)))
    return [noun for noun, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MAIN_NOUNS]]


def _basic_key(tool: Candidate, nouns: Sequence[str]) -> tuple[bool, int, int] | None:
    """How basic a tool is: whether it is just a verb and a noun, which noun, which verb; None if it is not basic."""
    spelt = words(tool.own_name)
    verb = next((_LIKE_BASIC.get(word, word) for word in spelt if _LIKE_BASIC.get(word, word) in BASIC_VERBS), None)
    if verb is None:
        return None
    if verb == "health":
        return (False, 0, BASIC_VERBS.index(verb))
    own = _nouns(tool)
    place = next((place for place, noun in enumerate(nouns) if own and noun == own[-1]), None)
    # A verb and its noun, with at most one word between: `get_card`, not `get_card_comments_by_user`.
    return (len(spelt) > 2, place, BASIC_VERBS.index(verb)) if place is not None and len(spelt) <= 3 else None


def _nouns(tool: Candidate) -> list[str]:
    verbs = {*BASIC_VERBS, *_LIKE_BASIC}
    return [_singular(word) for word in words(tool.own_name) if word not in verbs and not word.isdigit()]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
