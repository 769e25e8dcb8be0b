"""Metrics of tools, tiers and phases: what they consist of, and what they cannot say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from mcp_optimizer.metrics.tool_sizes import (
    MeasurementPhase,
    PhaseMetrics,
    TierMetrics,
    ToolPhaseMetrics,
    phase_metrics,
    tier_metrics,
)
from mcp_optimizer.profiles.tiers import Tier

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def row(name: str, baseline: int, optimized: int, tier: Tier = Tier.CORE) -> ToolPhaseMetrics:
    return ToolPhaseMetrics.of(name, baseline, optimized, MeasurementPhase.AFTER_PHASE_1, tier, NOW)


@pytest.mark.requirement("B5", "TM-1")
def test_the_metrics_of_a_tool_say_how_many_percent_a_phase_took_off() -> None:
    assert row("create_card", 3_600, 2_200).model_dump(mode="json") == {
        "tool_name": "create_card",
        "baseline_tokens": 3_600,
        "optimized_tokens": 2_200,
        "reduction_percent": pytest.approx(38.89, abs=0.05),
        "measurement_phase": "AfterPhase1",
        "tier": "Core",
        "timestamp": "2026-11-18T00:00:00Z",
    }
    assert [phase.value for phase in MeasurementPhase] == ["Baseline", "AfterPhase1", "AfterPhase2", "AfterPhase3"]
    assert row("empty", 0, 0).reduction_percent == 0.0


@pytest.mark.requirement("B5", "TM-2")
def test_a_tool_that_is_larger_after_a_phase_cannot_be_stated() -> None:
    assert row("same", 10, 10).reduction_percent == 0.0
    with pytest.raises(ValidationError):
        row("larger", 10, 11)
    fields = {**row("same", 10, 10).model_dump(), "optimized_tokens": 11}
    with pytest.raises(ValidationError, match="must not exceed"):
        ToolPhaseMetrics(**fields)


@pytest.mark.requirement("B5", "TM-3")
def test_a_tier_has_the_total_the_number_and_the_average_of_its_tools() -> None:
    rows = [row("a", 100, 60), row("b", 100, 41), row("c", 100, 7, Tier.RARE)]
    assert tier_metrics(rows) == [
        TierMetrics(tier_name=Tier.CORE, total_tokens=101, tool_count=2, average_per_tool=50.5),
        TierMetrics(tier_name=Tier.COMMON, total_tokens=0, tool_count=0, average_per_tool=0.0),
        TierMetrics(tier_name=Tier.RARE, total_tokens=7, tool_count=1, average_per_tool=7.0),
    ]


@pytest.mark.requirement("B5", "TM-4")
@pytest.mark.parametrize(("reduction", "achieved"), [(5_600, True), (5_599, False)])
def test_a_phase_is_achieved_from_its_target_on(reduction: int, achieved: bool) -> None:
    first, second, third = phase_metrics(reduction, 24_900, 2_000, {"schema compression": 5_600})
    assert first == PhaseMetrics(
        phase_name="schema compression", total_reduction=reduction, target_reduction=5_600, achieved=achieved
    )
    assert (second.total_reduction, third.total_reduction) == (24_900, 2_000)
    assert (second.target_reduction, second.achieved) == (None, None)
