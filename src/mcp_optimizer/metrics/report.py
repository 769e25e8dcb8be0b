"""The report on a catalog, as values and as JSON: its cost by server and tool, and the effect of each phase, form and
profile.

Called by the command line. Reads a snapshot and returns frozen values; starts nothing and shows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.domain.events import EventKind
from mcp_optimizer.metrics.advice import ListingCosts, advice, troubles
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.tool_sizes import (
    NO_TARGETS,
    MeasurementPhase,
    PhaseMetrics,
    Sizes,
    TierMetrics,
    TokenMeasurement,
    ToolPhaseMetrics,
    phase_metrics,
    sizes,
    tier_metrics,
)
from mcp_optimizer.metrics.usage import Activity, PeriodUnit, PricedSavings, Usage, UsagePeriod
from mcp_optimizer.metrics.weights import Weight, weights
from mcp_optimizer.profiles.lists import PhaseTokens, ToolLists
from mcp_optimizer.profiles.tiers import LoadStrategy, ProfileName, Reason, Tier, strategy_of

_LARGEST = 3


@dataclass(frozen=True)
class FormSavings:
    """The savings of some tools with compressed schemas, and as signatures."""

    schema: Reduction
    signature: Reduction


@dataclass(frozen=True)
class ProfileCost:
    """The cost of a profile for a client that is sent it."""

    profile: ProfileName
    budget: int | None
    tokens: int
    tools: int
    measures: str
    load_strategy: LoadStrategy
    """When the additional tools are registered for a client of the selected profile."""


@dataclass(frozen=True)
class ServerCost:
    """The cost of a server's definitions, in each form."""

    server: str
    tools: int
    baseline: int
    schema: int
    signature: int

    @property
    def title(self) -> str:
        return self.server


@dataclass(frozen=True)
class ToolCost:
    """The cost of a tool's definition in each form, its tier, and the reason for the tier."""

    name: str
    server: str
    tier: Tier
    reason: Reason
    baseline: int
    schema: int
    signature: int

    @property
    def title(self) -> str:
        return self.name


@dataclass(frozen=True)
class Report:
    """The contents of a report; servers and tools are sorted by size, largest first."""

    baseline_tokens: int
    sent_tokens: int
    """Tokens of these definitions that clients send, unless they load tools on demand."""
    tool_count: int
    own_tokens: int
    forms: FormSavings
    largest_three: tuple[str, ...]
    largest_forms: FormSavings
    """The savings of these three tools."""
    profile: ProfileName
    """The profile to which the phases and the total apply."""
    phases: tuple[PhaseMetrics, ...]
    total: Reduction
    tiers: tuple[TierMetrics, ...]
    profiles: tuple[ProfileCost, ...]
    servers: tuple[ServerCost, ...]
    tools: tuple[ToolCost, ...]
    catalog_advice: tuple[str, ...]
    """Advice that needs no usage."""
    unclear_descriptions: tuple[str, ...]
    metrics: tuple[ToolPhaseMetrics, ...]
    troubles: tuple[str, ...]
    """Problems that exist now."""
    usage: Usage | None
    """None if no history is kept, or none belongs to this catalog."""
    measurements: tuple[TokenMeasurement, ...] = ()
    """For programs, if they asked for them."""

    @property
    def advice(self) -> tuple[str, ...]:
        """Problems that exist now, then the best available advice: by usage if that is known."""
        return (*self.troubles, *(self.catalog_advice if self.usage is None else self.usage.advice))

    @property
    def weights(self) -> list[Weight]:
        return [Weight(tool.server, tool.name, tool.baseline) for tool in self.tools]


def make_report(
    snapshot: Snapshot,
    forms: ToolForms,
    lists: ToolLists,
    own_tokens: int,
    selected: ProfileName = ProfileName.MINIMAL,
    known: Sizes | None = None,
    usage: Usage | None = None,
    targets: Mapping[str, int] = NO_TARGETS,
) -> Report:
    """Makes the report. `known`: sizes of tools that were measured already; `targets`: those of the phases."""
    tools = sorted(snapshot.running, key=lambda tool: (-tool.tokens, tool.name))
    found = known or sizes(tools, forms)
    costs = _tool_costs(tools, found, lists)
    registered = frozenset(lists.profiles().by_name[selected].tools)
    phases = {tool.name: lists.phases(tool.name) for tool in tools}
    rows = _rows(costs, phases, registered)
    brief = sum(phases[name].concise for name in registered)
    baseline, largest = snapshot.baseline_tokens, costs[:_LARGEST]
    listing = ListingCosts.of(len(tools), snapshot.sent_tokens, own_tokens, ())
    return Report(
        baseline_tokens=baseline,
        sent_tokens=snapshot.sent_tokens,
        tool_count=len(tools),
        own_tokens=own_tokens,
        forms=_forms(baseline, costs),
        largest_three=tuple(cost.name for cost in largest),
        largest_forms=_forms(sum(cost.baseline for cost in largest), largest),
        profile=selected,
        phases=tuple(
            phase_metrics(
                sum(cost.baseline - phases[cost.name].compressed for cost in costs),
                baseline - sum(cost.baseline for cost in costs if cost.name in registered),
                sum(phase.compressed - phase.concise for phase in phases.values()),
                targets,
            )
        ),
        total=Reduction.of(baseline, brief, 1),
        tiers=tuple(tier_metrics(rows[MeasurementPhase.AFTER_PHASE_1])),
        profiles=_profile_costs(lists, selected),
        servers=_server_costs(costs),
        tools=costs,
        catalog_advice=advice((), weights(snapshot), {}, {}, listing),
        unclear_descriptions=tuple(lists.unclear()),
        metrics=tuple(row for phase in rows.values() for row in phase),
        troubles=troubles(snapshot),
        usage=usage,
    )


def _tool_costs(tools: Sequence[CatalogTool], found: Sizes, lists: ToolLists) -> tuple[ToolCost, ...]:
    profiles = lists.profiles()
    return tuple(
        ToolCost(
            name=tool.name,
            server=tool.server,
            tier=profiles.tier_of[tool.name],
            reason=profiles.reasons[tool.name],
            baseline=tool.tokens,
            schema=found[tool.name][0],
            signature=found[tool.name][1],
        )
        for tool in tools
    )


def _forms(baseline: int, costs: Sequence[ToolCost]) -> FormSavings:
    return FormSavings(
        Reduction.of(baseline, sum(cost.schema for cost in costs), 1),
        Reduction.of(baseline, sum(cost.signature for cost in costs), 1),
    )


def _profile_costs(lists: ToolLists, selected: ProfileName) -> tuple[ProfileCost, ...]:
    return tuple(
        ProfileCost(
            profile=profile.profile_name,
            budget=profile.token_budget,
            tokens=lists.total_tokens(profile.profile_name),
            tools=len(profile.tools),
            measures=profile.measures,
            load_strategy=strategy_of(profile.profile_name, selected),
        )
        for profile in lists.profiles().by_name.values()
    )


def _server_costs(costs: Sequence[ToolCost]) -> tuple[ServerCost, ...]:
    by_server: dict[str, list[ToolCost]] = defaultdict(list)
    for cost in costs:
        by_server[cost.server].append(cost)
    rows = [
        ServerCost(
            server=server,
            tools=len(own),
            baseline=sum(cost.baseline for cost in own),
            schema=sum(cost.schema for cost in own),
            signature=sum(cost.signature for cost in own),
        )
        for server, own in by_server.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.baseline, row.server)))


def _rows(
    costs: Sequence[ToolCost], phases: Mapping[str, PhaseTokens], registered: Collection[str]
) -> dict[MeasurementPhase, list[ToolPhaseMetrics]]:
    """One row per tool and phase; a tool that is not registered costs nothing at the start."""
    now = datetime.now(UTC)
    after = {
        MeasurementPhase.BASELINE: {cost.name: cost.baseline for cost in costs},
        MeasurementPhase.AFTER_PHASE_1: {name: phase.compressed for name, phase in phases.items()},
        MeasurementPhase.AFTER_PHASE_2: {name: phases[name].compressed for name in registered},
        MeasurementPhase.AFTER_PHASE_3: {name: phases[name].concise for name in registered},
    }
    return {
        phase: [
            ToolPhaseMetrics.of(
                cost.name, cost.baseline, min(cost.baseline, tokens.get(cost.name, 0)), phase, cost.tier, now
            )
            for cost in costs
        ]
        for phase, tokens in after.items()
    }


# The report for programs: its values as plain JSON. Other programs rely on these keys, so a test compares them with a
# stored report byte for byte.


def report_values(report: Report) -> dict[str, Any]:
    """The whole report; `usage` is null if no history was requested."""
    return {
        "baseline_tokens": report.baseline_tokens,
        "sent_tokens": report.sent_tokens,
        "tool_count": report.tool_count,
        "own_tokens": report.own_tokens,
        "forms": {"schema": _reduced(report.forms.schema), "signature": _reduced(report.forms.signature)},
        "largest_three": {
            "tools": list(report.largest_three),
            "schema": _reduced(report.largest_forms.schema),
            "signature": _reduced(report.largest_forms.signature),
        },
        "profile": report.profile.value,
        "phases": [phase.model_dump(mode="json", exclude_none=True) for phase in report.phases],
        "total": _reduced(report.total),
        "tiers": [tier.model_dump(mode="json") for tier in report.tiers],
        "profiles": [{**asdict(cost), "profile": cost.profile.value} for cost in report.profiles],
        "servers": [asdict(server) for server in report.servers],
        "tools": [_tool(tool) for tool in report.tools],
        "advice": list(report.catalog_advice),
        "unclear_descriptions": list(report.unclear_descriptions),
        "metrics": [row.model_dump(mode="json") for row in report.metrics],
        "measurements": [row.model_dump(mode="json") for row in report.measurements],
        "broken_now": list(report.troubles),
        "usage": None if report.usage is None else usage_values(report.usage),
    }


def usage_values(usage: Usage) -> dict[str, Any]:
    """How the catalog was used."""
    return {
        "events": usage.events,
        "since": _moment(usage.since),
        "until": _moment(usage.until),
        "savings": {**_priced(usage.savings), "assumptions": list(usage.savings.assumptions)},
        "money": None if usage.money is None else _in_money(usage.money),
        "results": _reduced(usage.results),
        "scripts": {"runs": usage.times(EventKind.SCRIPT), "kept_out": usage.scripts.saved},
        "kinds": [{"kind": row.kind.value, **_activity(row.activity)} for row in usage.kinds],
        "clients": [{"client": row.name, **_activity(row.activity)} for row in usage.clients],
        "callers": [{"caller": row.name, **_activity(row.activity)} for row in usage.callers],
        "called": [{"server": row.server, "tool": row.tool, **_activity(row.activity)} for row in usage.called],
        "found": [asdict(row) for row in usage.found],
        "never_called": [
            {"server": row.server, "tools": row.tools, "of": row.of, "tokens": row.tokens, "names": list(row.names)}
            for row in usage.never_called
        ],
        "period": usage.period,
        "periods": [_period(row, usage.period) for row in usage.periods],
        "advice": list(usage.advice),
        "verdict": {**asdict(usage.verdict), "why": list(usage.verdict.why)},
        "on_demand": list(usage.on_demand),
        "unknown_clients": list(usage.unknown),
        "other_events": usage.others,
    }


def _tool(tool: ToolCost) -> dict[str, Any]:
    return {**asdict(tool), "tier": tool.tier.value, "reason": tool.reason.value}


def _reduced(reduction: Reduction) -> dict[str, float]:
    return asdict(reduction)


def _with_and_without(reduction: Reduction) -> dict[str, float]:
    return {
        "without": reduction.before,
        "with": reduction.after,
        "saved": reduction.saved,
        "percent": reduction.percent,
    }


def _priced(priced: PricedSavings) -> dict[str, Any]:
    without, with_us = priced.savings.without, priced.savings.with_us
    return {
        "sessions": priced.savings.sessions,
        "requests": {"without": without.requests, "with": with_us.requests},
        "tokens": {"without": without.tokens, "with": with_us.tokens, "saved": without.tokens - with_us.tokens},
        "uncached": _with_and_without(priced.uncached),
        "cached": _with_and_without(priced.cached),
    }


def _in_money(priced: PricedSavings) -> dict[str, Any]:
    prices = {"model": priced.prices.model, "currency": priced.prices.currency}
    return {**_priced(priced), **prices, "assumptions": list(priced.assumptions)}


def _activity(activity: Activity) -> dict[str, Any]:
    return asdict(activity)


def _period(row: UsagePeriod, unit: PeriodUnit) -> dict[str, Any]:
    return {
        "begin": row.begin.isoformat(timespec="minutes") if unit != "day" else row.begin.date().isoformat(),
        "finds": row.finds,
        "calls": row.calls,
        "without": row.without,
        "with": row.with_us,
        "saved": row.saved,
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
