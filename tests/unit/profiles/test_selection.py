"""Tools are chosen by tier and rank, within a budget that is never exceeded and never filled for its own sake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.profiles.tiers import (
    Candidate,
    LoadStrategy,
    ProfileName,
    Profiles,
    Ranked,
    Reason,
    Tier,
    rank,
    strategy_of,
)

OWN = 100
COST = {Level.FULL: 4, Level.WORDS: 1}


def tools(*weights: int) -> list[Candidate]:
    return [
        Candidate(f"tool_{number:03}", "server", f"tool_{number:03}", weight) for number, weight in enumerate(weights)
    ]


def pinned(*weights: int) -> list[Ranked]:
    return [Ranked(tool, Reason.PINNED, Tier.CORE) for tool in tools(*weights)]


def profiles(
    ranked: Sequence[Ranked],
    minimal: int | None,
    standard: int | None = None,
    full: int | None = None,
    concise: frozenset[ProfileName] = frozenset(),
) -> tuple[Profiles, Counter[str]]:
    """Tools cost their weight in five words, four times that in full. Also counts measurements."""
    asked: Counter[str] = Counter()

    def size(candidate: Candidate, level: Level) -> int:
        asked[candidate.name] += 1
        return candidate.tokens * COST[level]

    budgets: Mapping[ProfileName, int | None] = dict(zip(ProfileName, (minimal, standard, full), strict=True))
    return Profiles(ranked, size, OWN, budgets, concise), asked


def test_a_profile_over_its_budget_drops_tools_and_no_description_gets_worse() -> None:
    for budget, fitting in ((900, 2), (500, 1), (300, 0)):
        made = profiles(pinned(100, 100), budget)[0].profile(ProfileName.MINIMAL)
        assert (made.level, len(made.tools), len(made.left_out)) == (Level.FULL, fitting, 2 - fitting)
        assert made.tokens == OWN + 400 * fitting
    assert profiles(pinned(100, 100), 500)[0].profile(ProfileName.MINIMAL).measures == "1 tool left to find_tool"


def test_a_profile_is_described_in_five_words_where_that_is_wanted() -> None:
    made = profiles(pinned(100, 100), 900, 900, concise=frozenset({ProfileName.MINIMAL}))[0]
    assert made.profile(ProfileName.MINIMAL).level is Level.WORDS
    assert made.profile(ProfileName.MINIMAL).measures == "described in five words"
    assert made.profile(ProfileName.STANDARD).level is Level.FULL


def test_a_budget_is_not_filled_with_tools_of_later_tiers() -> None:
    made = profiles(rank(tools(*[10] * 100)), 1_000_000, 1_000_000)[0]
    assert [len(made.profile(name).tools) for name in ProfileName] == [20, 50, 100]


def test_no_more_tools_are_measured_than_it_takes() -> None:
    ranked = rank(tools(*[50] * 1_000))
    made, asked = profiles(ranked, 1_000, 2_000)
    assert len(made.profile(ProfileName.STANDARD).tools) > len(made.profile(ProfileName.MINIMAL).tools) > 0
    assert len(asked) < 50
    # Without a budget, no tool needs to be measured.
    made, asked = profiles(ranked, 1_000, 2_000)
    assert len(made.profile(ProfileName.FULL).tools) == 1_000
    assert made.profile(ProfileName.FULL).tokens is None
    assert not asked


def test_a_deserving_tool_that_is_too_large_does_not_end_the_search_for_smaller_ones() -> None:
    made = profiles(pinned(50, 5_000, 50), 600)[0].profile(ProfileName.MINIMAL)
    assert made.tools == ("tool_000", "tool_002")
    assert made.left_out == ("tool_001",)


@pytest.mark.requirement("TS-4", "TP-3", "TP-7")
def test_every_tool_has_one_tier_and_the_next_tier_comes_on_first_use() -> None:
    made, _ = profiles(rank(tools(*[50] * 100)), 100_000, 200_000)
    assert Counter(made.tier_of.values()) == {Tier.CORE: 20, Tier.COMMON: 30, Tier.RARE: 50}
    tool_of = {tier: tool for tool, tier in made.tier_of.items()}
    strategies = [made.strategy(tool_of[tier], ProfileName.MINIMAL) for tier in Tier]
    assert strategies == [LoadStrategy.IMMEDIATE, LoadStrategy.ON_FIRST_USE, LoadStrategy.ON_DEMAND]
    assert strategies == [strategy_of(name, ProfileName.MINIMAL) for name in ProfileName]
    assert all(made.strategy(tool, ProfileName.FULL) is LoadStrategy.IMMEDIATE for tool in made.tier_of)
    assert set(made.reasons.values()) == {Reason.WEIGHT}
    assert {profile.load_strategy for profile in made.by_name.values()} == {LoadStrategy.IMMEDIATE}


def test_a_core_tool_that_does_not_fit_is_registered_on_its_first_use() -> None:
    made, _ = profiles(pinned(50, 5_000), 600)
    assert made.strategy("tool_001", ProfileName.MINIMAL) is LoadStrategy.ON_FIRST_USE


@pytest.mark.requirement("B3", "TP-1")
@given(
    st.lists(st.tuples(st.integers(16, 400), st.integers(0, 3)), max_size=60),
    st.integers(0, 3_000),
    st.integers(0, 6_000),
)
def test_budgets_hold_and_a_larger_profile_keeps_what_a_smaller_one_has(
    drawn: list[tuple[int, int]], minimal: int, more: int
) -> None:
    candidates = [
        Candidate(f"tool_{number}", "server", f"get_thing{number}", tokens, uses)
        for number, (tokens, uses) in enumerate(drawn)
    ]
    made, _ = profiles(rank(candidates, ["tool_3"]), OWN + minimal, OWN + minimal + more, OWN + minimal + 2 * more)
    for name in ProfileName:
        profile = made.profile(name)
        costs = {candidate.name: candidate.tokens * COST[profile.level] for candidate in candidates}
        assert profile.tokens == OWN + sum(costs[tool] for tool in profile.tools)
        assert profile.token_budget is not None
        assert profile.tokens <= profile.token_budget
        assert len(set(profile.tools)) == len(profile.tools)
    assert set(made.profile(ProfileName.MINIMAL).tools) <= set(made.profile(ProfileName.STANDARD).tools)
