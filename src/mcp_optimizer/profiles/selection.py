"""Fits tools into token budgets: which are registered in each profile, and how briefly they are described. Pure.

A profile over its budget is first described more briefly (first sentences, then five words and no notes) and
only then loses tools, the least deserving first; what was done is said. Every tool gets exactly one profile:
the smallest that registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.compression.descriptions import Level
from mcp_optimizer.profiles.tiers import Candidate, ProfileName, Ranked, Reason

Size = Callable[[Candidate, Level], int]
"""What a tool costs when it is registered, described at a level."""

DEFAULT_BUDGETS: Mapping[ProfileName, int | None] = {
    ProfileName.MINIMAL: 9_000,
    ProfileName.STANDARD: 20_000,
    ProfileName.FULL: None,
}
_RESERVE = 0.15
"""The share of a budget that is kept for tools that are registered on their first use."""

_LEAST = 16
"""Tokens of the smallest tool there can be, about: with less room than this, no other need be looked at."""

_LEVELS = (Level.FULL, Level.SENTENCE, Level.WORDS)


class LoadStrategy(StrEnum):
    """When a tool is registered with the client."""

    IMMEDIATE = "Immediate"
    ON_FIRST_USE = "OnFirstUse"
    ON_DEMAND = "OnDemand"


@dataclass(frozen=True)
class ToolProfile:
    """What a profile registers, within which budget, at which length, and what that took.

    `tokens` is None where there is no budget: then nothing had to be counted.
    """

    profile_name: ProfileName
    token_budget: int | None
    level: Level
    tools: tuple[str, ...]
    tokens: int | None
    left_out: tuple[str, ...] = ()

    @property
    def room(self) -> int | None:
        """Tokens that are left of the budget."""
        return None if self.token_budget is None or self.tokens is None else self.token_budget - self.tokens

    @property
    def measures(self) -> str:
        """What was done to stay within the budget, for people."""
        done = {Level.FULL: "", Level.SENTENCE: "described in first sentences", Level.WORDS: "described in five words"}
        parts = [done[self.level]] if done[self.level] else []
        parts += [f"{len(self.left_out)} tools left to find_tool"] if self.left_out else []
        return ", ".join(parts) or "as they are"


@dataclass(frozen=True)
class Profiles:
    """All profiles of a catalog, and the one that each tool belongs to."""

    by_name: Mapping[ProfileName, ToolProfile]
    tier_of: Mapping[str, ProfileName]
    reasons: Mapping[str, Reason]

    def strategy(self, tool: str, selected: ProfileName) -> LoadStrategy:
        """When a tool is registered under the selected profile: its own tier at once, the next after a first use."""
        order = list(ProfileName)
        distance = order.index(self.tier_of[tool]) - order.index(selected)
        if distance <= 0:
            return LoadStrategy.IMMEDIATE
        return LoadStrategy.ON_FIRST_USE if distance == 1 else LoadStrategy.ON_DEMAND


def make_profiles(
    ranked: Sequence[Ranked],
    size: Size,
    own_tokens: int,
    budgets: Mapping[ProfileName, int | None] = DEFAULT_BUDGETS,
) -> Profiles:
    """`own_tokens` is what the gateway's own tools cost: they are in every list, and count."""
    profiles: dict[ProfileName, ToolProfile] = {}
    tier_of: dict[str, ProfileName] = {}
    kept: tuple[str, ...] = ()
    for name in ProfileName:
        profile = _fit(name, ranked, size, own_tokens, budgets[name], frozenset(kept))
        profiles[name] = profile
        kept = profile.tools
        for tool in profile.tools:
            tier_of.setdefault(tool, name)
    for entry in ranked:
        # What no budget holds is still found: it belongs to the widest profile.
        tier_of.setdefault(entry.candidate.name, ProfileName.FULL)
    return Profiles(profiles, tier_of, {entry.candidate.name: entry.reason for entry in ranked})


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
    # What a smaller profile registers, this one does too; then by rank.
    for candidate in sorted(everything, key=lambda candidate: candidate.name not in kept):
        is_deserving = candidate.name in deserving
        room = (budget if is_deserving else budget * (1 - _RESERVE)) - total
        cost = size(candidate, level) if room >= _LEAST else None
        if cost is not None and cost <= room:
            chosen.append(candidate.name)
            total += cost
        elif not is_deserving:
            # These come lightest first: the first that does not fit is the last that is tried.
            break
    left_out = tuple(candidate.name for candidate in wanted if candidate.name not in set(chosen))
    return ToolProfile(name, budget, level, tuple(chosen), total, left_out)


def _fits(tools: Sequence[Candidate], level: Level, size: Size, room: int) -> bool:
    """Whether all of them do; no more are measured than it takes to know."""
    for tool in tools:
        room -= size(tool, level)
        if room < 0:
            return False
    return True
