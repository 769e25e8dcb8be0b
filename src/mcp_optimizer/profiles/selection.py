"""Fits tools into token budgets: which tools each profile registers. Pure.

A profile registers the tools of its tier and of the tiers before it, by rank, as far as its budget allows. A budget is
an upper bound: nothing is added to fill it, and no description is shortened to fit more tools in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.profiles.tiers import Candidate, ProfileName, Ranked, Reason, Tier
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.terminal_text import counted

Size = Callable[[Candidate, Level], int]
"""A tool's cost when it is registered with a description at this level."""

DEFAULT_BUDGETS: Mapping[ProfileName, int | None] = {
    ProfileName.MINIMAL: 9_000,
    ProfileName.STANDARD: 20_000,
    ProfileName.FULL: None,
}
DEFAULT_CONCISE = frozenset({ProfileName.MINIMAL})
"""Profiles whose tools are described in at most five words."""

_LEAST = 16
"""Approximate tokens of the smallest possible tool; with less room, no further tool is tried."""

_TRIES = 20
"""After this many tools in a row do not fit, no more are measured."""


class LoadStrategy(StrEnum):
    """When a tool is registered with the client."""

    IMMEDIATE = "Immediate"
    ON_FIRST_USE = "OnFirstUse"
    ON_DEMAND = "OnDemand"


@dataclass(frozen=True)
class ToolProfile:
    """The tools that a profile registers, its budget, the level of its descriptions, and the tools that did not fit.

    `tokens` is None without a budget, because nothing had to be counted.
    """

    profile_name: ProfileName
    token_budget: int | None
    level: Level
    tools: tuple[str, ...]
    tokens: int | None
    left_out: tuple[str, ...] = ()
    load_strategy: LoadStrategy = LoadStrategy.IMMEDIATE
    """When the profile's tools are registered for a client that selects it."""

    @property
    def room(self) -> int | None:
        """Tokens left in the budget."""
        return None if self.token_budget is None or self.tokens is None else self.token_budget - self.tokens

    @property
    def measures(self) -> str:
        """For people: how the profile's tools are described, and how many did not fit."""
        parts = ["described in five words"] if self.level is Level.WORDS else []
        parts += [f"{counted(len(self.left_out), 'tool')} left to find_tool"] if self.left_out else []
        return ", ".join(parts) or "as they are"


class Profiles:
    """All profiles of a catalog, and the tier of each tool. Each profile is built on demand.

    `own_tokens` is the cost of the gateway's own tools, which are part of every list.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        size: Size,
        own_tokens: int,
        budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
        concise: Collection[ProfileName] = DEFAULT_CONCISE,
    ) -> None:
        self._ranked = ranked
        self._size = size
        self._own_tokens = own_tokens
        self._budgets = budgets
        self._concise = concise
        self._made: dict[ProfileName, ToolProfile] = {}
        self._names: dict[ProfileName, frozenset[str]] = {}

    def profile(self, name: ProfileName) -> ToolProfile:
        if name not in self._made:
            level = Level.WORDS if name in self._concise else Level.FULL
            place = _ORDER.index(name)
            wanted = [entry for entry in self._ranked if _ORDER.index(entry.tier.profile) <= place]
            if place and self._budgets[name] is not None:
                # A larger profile registers every tool that a smaller one does.
                kept = self._registered(_ORDER[place - 1])
                wanted.sort(key=lambda entry: entry.candidate.name not in kept)
            self._made[name] = _fit(name, wanted, self._size, self._own_tokens, self._budgets[name], level)
        return self._made[name]

    @lazy
    def by_name(self) -> Mapping[ProfileName, ToolProfile]:
        return {name: self.profile(name) for name in ProfileName}

    @lazy
    def tier_of(self) -> Mapping[str, Tier]:
        """Each tool's tier, and so the one profile that it belongs to, whether or not that profile has room for it."""
        return {entry.candidate.name: entry.tier for entry in self._ranked}

    @lazy
    def reasons(self) -> Mapping[str, Reason]:
        return {entry.candidate.name: entry.reason for entry in self._ranked}

    def strategy(self, tool: str, selected: ProfileName) -> LoadStrategy:
        """When a tool is registered under the selected profile: at once, after its first use, or on demand."""
        if tool in self._registered(selected):
            return LoadStrategy.IMMEDIATE
        return max(strategy_of(self.tier_of[tool].profile, selected), LoadStrategy.ON_FIRST_USE, key=_STRATEGIES.index)

    def _registered(self, selected: ProfileName) -> frozenset[str]:
        if selected not in self._names:
            self._names[selected] = frozenset(self.profile(selected).tools)
        return self._names[selected]


_ORDER = list(ProfileName)
_STRATEGIES = list(LoadStrategy)


def strategy_of(profile: ProfileName, selected: ProfileName) -> LoadStrategy:
    """When the tools that a profile adds are registered for a client that selected the same or another profile."""
    distance = _ORDER.index(profile) - _ORDER.index(selected)
    return _STRATEGIES[min(max(distance, 0), len(_STRATEGIES) - 1)]


def _fit(
    name: ProfileName, wanted: Sequence[Ranked], size: Size, own_tokens: int, budget: int | None, level: Level
) -> ToolProfile:
    """Selects the tools that fit, in order of rank; a pinned or used tool is always tried."""
    if budget is None:
        return ToolProfile(name, None, level, tuple(entry.candidate.name for entry in wanted), None)
    chosen: list[str] = []
    left_out: list[str] = []
    total, failed = own_tokens, 0
    for entry in wanted:
        is_deserving = entry.reason in (Reason.PINNED, Reason.USED)
        is_tried = budget - total >= _LEAST and (is_deserving or failed < _TRIES)
        cost = size(entry.candidate, level) if is_tried else None
        if cost is not None and total + cost <= budget:
            chosen.append(entry.candidate.name)
            total, failed = total + cost, 0
        else:
            left_out.append(entry.candidate.name)
            failed += 1
    return ToolProfile(name, budget, level, tuple(chosen), total, tuple(left_out))
