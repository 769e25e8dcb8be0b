"""The report for programs: its values as plain JSON. Pure.

Called by `report --json`. Other programs rely on these keys, so a test compares them with a stored report byte for
byte.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from mcp_optimizer.domain.events import EventKind
from mcp_optimizer.metrics.reduction import Reduction
from mcp_optimizer.metrics.report import Report, ToolCost
from mcp_optimizer.metrics.usage import Activity, PeriodUnit, PricedSavings, Usage, UsagePeriod


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
