"""Tools are chosen for a budget by rank, and described more briefly before any is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.compression.descriptions import Level
from mcp_optimizer.profiles.selection import LoadStrategy, Profiles
from mcp_optimizer.profiles.tiers import Candidate, ProfileName, Ranked, Reason, rank

OWN = 100
BRIEFER = {Level.FULL: 4, Level.SENTENCE: 2, Level.WORDS: 1}


def tools(*weights: int) -> list[Candidate]:
    return [
        Candidate(f"tool_{number:03}", "server", f"tool_{number:03}", weight) for number, weight in enumerate(weights)
    ]


def profiles(
    ranked: Sequence[Ranked], minimal: int | None, standard: int | None = None, full: int | None = None
) -> tuple[Profiles, Counter[str]]:
    """Tools cost their weight in words, twice that in sentences, four times in full. Also counts measurements."""
    asked: Counter[str] = Counter()

    def size(candidate: Candidate, level: Level) -> int:
        asked[candidate.name] += 1
        return candidate.tokens * BRIEFER[level]

    budgets: Mapping[ProfileName, int | None] = dict(zip(ProfileName, (minimal, standard, full), strict=True))
    return Profiles(ranked, size, OWN, budgets), asked


def test_a_profile_over_its_budget_is_described_more_briefly_before_it_drops_a_tool() -> None:
    pinned = [Ranked(tool, Reason.PINNED) for tool in tools(100, 100)]
    for budget, level in ((900, Level.FULL), (500, Level.SENTENCE), (300, Level.WORDS)):
        made = profiles(pinned, budget)[0].profile(ProfileName.MINIMAL)
        assert (made.level, made.tools, made.left_out) == (level, ("tool_000", "tool_001"), ())
        assert made.tokens == OWN + 200 * BRIEFER[level]
    tight = profiles(pinned, 250)[0].profile(ProfileName.MINIMAL)
    assert (tight.tools, tight.left_out, tight.room) == (("tool_000",), ("tool_001",), 50)
    assert tight.measures == "described in five words, 1 tool left to find_tool"


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
    pinned = [Ranked(tool, Reason.PINNED) for tool in tools(50, 5_000, 50)]
    made = profiles(pinned, 300)[0].profile(ProfileName.MINIMAL)
    assert made.tools == ("tool_000", "tool_002")
    assert made.left_out == ("tool_001",)


def test_tools_that_only_weigh_little_leave_a_reserve_for_those_that_come_into_use() -> None:
    made = profiles(rank(tools(*[10] * 1_000)), 1_000)[0].profile(ProfileName.MINIMAL)
    assert made.room is not None
    assert made.room >= 150


@pytest.mark.requirement("TS-4", "TP-3", "TP-7")
def test_every_tool_has_one_tier_and_the_next_tier_comes_on_first_use() -> None:
    made, _ = profiles(rank(tools(*[50] * 100)), 1_000, 2_000)
    counted = Counter(made.tier_of.values())
    assert sum(counted.values()) == 100
    assert counted[ProfileName.MINIMAL] == len(made.by_name[ProfileName.MINIMAL].tools)
    tool_of = {tier: tool for tool, tier in made.tier_of.items()}
    strategies = [made.strategy(tool_of[tier], ProfileName.MINIMAL) for tier in ProfileName]
    assert strategies == [LoadStrategy.IMMEDIATE, LoadStrategy.ON_FIRST_USE, LoadStrategy.ON_DEMAND]
    assert all(made.strategy(tool, ProfileName.FULL) is LoadStrategy.IMMEDIATE for tool in made.tier_of)
    assert set(made.reasons.values()) == {Reason.WEIGHT}


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
        costs = {candidate.name: candidate.tokens * BRIEFER[profile.level] for candidate in candidates}
        assert profile.tokens == OWN + sum(costs[tool] for tool in profile.tools)
        assert profile.token_budget is not None
        assert profile.tokens <= profile.token_budget
        assert len(set(profile.tools)) == len(profile.tools)
    if made.profile(ProfileName.MINIMAL).level is made.profile(ProfileName.STANDARD).level:
        assert set(made.profile(ProfileName.MINIMAL).tools) <= set(made.profile(ProfileName.STANDARD).tools)
