"""Fits tools into token budgets: which tools each profile registers, and how briefly they are described. Pure.

A profile over its budget first gets shorter descriptions (first sentences, then five words and no notes) and only then
loses tools, lowest rank first; `measures` reports what was done. Every tool belongs to exactly one profile: the
smallest that registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.compression.descriptions import Level
from mcp_optimizer.profiles.tiers import Candidate, ProfileName, Ranked, Reason
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.terminal_text import counted

Size = Callable[[Candidate, Level], int]
"""What a tool costs when it is registered with a description at this level."""

DEFAULT_BUDGETS: Mapping[ProfileName, int | None] = {
    ProfileName.MINIMAL: 9_000,
    ProfileName.STANDARD: 20_000,
    ProfileName.FULL: None,
}
_RESERVE = 0.15
"""The share of a budget reserved for tools registered on their first use."""

_LEAST = 16
"""Approximate tokens of the smallest possible tool; with less room, no other need be tried."""

_LEVELS = (Level.FULL, Level.SENTENCE, Level.WORDS)


class LoadStrategy(StrEnum):
    """When a tool is registered with the client."""

    IMMEDIATE = "Immediate"
    ON_FIRST_USE = "OnFirstUse"
    ON_DEMAND = "OnDemand"


@dataclass(frozen=True)
class ToolProfile:
    """What a profile registers, its budget, the length of descriptions, and what it took to fit.

    `tokens` is None without a budget, because nothing had to be counted.
    """

    profile_name: ProfileName
    token_budget: int | None
    level: Level
    tools: tuple[str, ...]
    tokens: int | None
    left_out: tuple[str, ...] = ()

    @property
    def room(self) -> int | None:
        """Tokens left of the budget."""
        return None if self.token_budget is None or self.tokens is None else self.token_budget - self.tokens

    @property
    def measures(self) -> str:
        """What was done to stay within the budget, for people."""
        done = {Level.FULL: "", Level.SENTENCE: "described in first sentences", Level.WORDS: "described in five words"}
        parts = [done[self.level]] if done[self.level] else []
        parts += [f"{counted(len(self.left_out), 'tool')} left to find_tool"] if self.left_out else []
        return ", ".join(parts) or "as they are"


class Profiles:
    """All profiles of a catalog, and the profile of each tool. Each profile is built on demand.

    `own_tokens` is the cost of the gateway's own tools, which are part of every list.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        size: Size,
        own_tokens: int,
        budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
    ) -> None:
        self._ranked = ranked
        self._size = size
        self._own_tokens = own_tokens
        self._budgets = budgets
        self._made: dict[ProfileName, ToolProfile] = {}

    def profile(self, name: ProfileName) -> ToolProfile:
        if name not in self._made:
            budget = self._budgets[name]
            order = list(ProfileName)
            smaller = order[order.index(name) - 1] if budget is not None and name is not order[0] else None
            # A larger profile registers everything that a smaller one does.
            kept = frozenset(self.profile(smaller).tools) if smaller is not None else frozenset[str]()
            self._made[name] = _fit(name, self._ranked, self._size, self._own_tokens, budget, kept)
        return self._made[name]

    @lazy
    def by_name(self) -> Mapping[ProfileName, ToolProfile]:
        return {name: self.profile(name) for name in ProfileName}

    @lazy
    def tier_of(self) -> Mapping[str, ProfileName]:
        """The smallest profile that registers a tool. A tool that fits no budget can still be found; it belongs to the
        widest.
        """
        tiers = {entry.candidate.name: ProfileName.FULL for entry in self._ranked}
        for name in reversed(ProfileName):
            if name is not ProfileName.FULL:
                tiers.update(dict.fromkeys(self.profile(name).tools, name))
        return tiers

    @lazy
    def reasons(self) -> Mapping[str, Reason]:
        return {entry.candidate.name: entry.reason for entry in self._ranked}

    def strategy(self, tool: str, selected: ProfileName) -> LoadStrategy:
        """When a tool is registered under the selected profile: its own tier at once, the next after a first use."""
        order = list(ProfileName)
        distance = order.index(self.tier_of[tool]) - order.index(selected)
        if distance <= 0:
            return LoadStrategy.IMMEDIATE
        return LoadStrategy.ON_FIRST_USE if distance == 1 else LoadStrategy.ON_DEMAND


def _fit(
    name: ProfileName,
    ranked: Sequence[Ranked],
    size: Size,
    own_tokens: int,
    budget: int | None,
    kept: frozenset[str],
) -> ToolProfile:
    everything = [entry.candidate for entry in ranked]
    if budget is None:
        return ToolProfile(name, None, Level.FULL, tuple(candidate.name for candidate in everything), None)
    wanted = [e.candidate for e in ranked if e.reason is not Reason.WEIGHT or e.candidate.name in kept]
    level = next((one for one in _LEVELS if _fits(wanted, one, size, budget - own_tokens)), Level.WORDS)
    chosen: list[str] = []
    total = own_tokens
    deserving = {candidate.name for candidate in wanted}
    # First what a smaller profile registers, then by rank.
    for candidate in sorted(everything, key=lambda candidate: candidate.name not in kept):
        is_deserving = candidate.name in deserving
        room = (budget if is_deserving else budget * (1 - _RESERVE)) - total
        cost = size(candidate, level) if room >= _LEAST else None
        if cost is not None and cost <= room:
            chosen.append(candidate.name)
            total += cost
        elif not is_deserving:
            # Sorted by size: once one does not fit, no later one does.
            break
    left_out = tuple(candidate.name for candidate in wanted if candidate.name not in set(chosen))
    return ToolProfile(name, budget, level, tuple(chosen), total, left_out)


def _fits(tools: Sequence[Candidate], level: Level, size: Size, room: int) -> bool:
    """Whether all of them fit; measures only as many as needed to know."""
    for tool in tools:
        room -= size(tool, level)
        if room < 0:
            return False
    return True
