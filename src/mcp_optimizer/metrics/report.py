"""The report on a catalog: its cost by server and tool, and the effect of each phase, form and profile.

Called by the command line. Reads a snapshot; starts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.forms import ToolForms
from mcp_optimizer.compression.descriptions import Level
from mcp_optimizer.metrics.phases import MeasurementPhase, TokenMetrics, phase_metrics, tier_metrics
from mcp_optimizer.metrics.sizes import Sizes, sizes
from mcp_optimizer.metrics.usage import Weight, advice
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import ProfileName

_LARGEST = 3


def make_report(
    snapshot: Snapshot,
    forms: ToolForms,
    lists: ToolLists,
    own_tokens: int,
    selected: ProfileName = ProfileName.MINIMAL,
    known: Sizes | None = None,
) -> dict[str, Any]:
    """The complete report as plain values; largest tools first."""
    tools = sorted(snapshot.running, key=lambda tool: (-tool.tokens, tool.name))
    profiles = lists.profiles()
    found = known or sizes(tools, forms)
    compressed = {tool.name: found[tool.name][0] for tool in tools}
    signatures = {tool.name: found[tool.name][1] for tool in tools}
    registered = set(profiles.by_name[selected].tools)
    full = {name: lists.tokens(name, Level.FULL) for name in registered}
    brief = {name: min(full[name], lists.tokens(name, Level.WORDS)) for name in registered}
    rows = _rows(tools, compressed, full, brief, lists)
    baseline = snapshot.baseline_tokens
    largest = tools[:_LARGEST]
    return {
        "baseline_tokens": baseline,
        "tool_count": len(tools),
        "own_tokens": own_tokens,
        "forms": {
            "schema": _saving(baseline, sum(compressed.values())),
            "signature": _saving(baseline, sum(signatures.values())),
        },
        "largest_three": {
            "tools": [tool.name for tool in largest],
            "schema": _saving(sum(t.tokens for t in largest), sum(compressed[t.name] for t in largest)),
            "signature": _saving(sum(t.tokens for t in largest), sum(signatures[t.name] for t in largest)),
        },
        "profile": selected.value,
        "phases": [
            phase.model_dump()
            for phase in phase_metrics(baseline, sum(compressed.values()), sum(full.values()), sum(brief.values()))
        ],
        "total": _saving(baseline, sum(brief.values())),
        "tiers": [tier.model_dump() for tier in tier_metrics(rows[MeasurementPhase.AFTER_PHASE_1])],
        "profiles": [
            {
                "profile": profile.profile_name.value,
                "budget": profile.token_budget,
                "tokens": lists.total_tokens(profile.profile_name),
                "tools": len(profile.tools),
                "measures": profile.measures,
            }
            for profile in profiles.by_name.values()
        ],
        "servers": _servers(tools, compressed, signatures),
        "tools": [
            {
                "name": tool.name,
                "server": tool.server,
                "tier": profiles.tier_of[tool.name].value,
                "reason": profiles.reasons[tool.name].value,
                "baseline": tool.tokens,
                "schema": compressed[tool.name],
                "signature": signatures[tool.name],
            }
            for tool in tools
        ],
        "advice": advice((), weights(snapshot), {}, {}),
        "unclear_descriptions": lists.unclear(),
        "metrics": [row.model_dump(mode="json") for phase in rows.values() for row in phase],
    }


def weights(snapshot: Snapshot) -> list[Weight]:
    """The running tools by the cost of their definitions."""
    return [Weight(tool.server, tool.record.name, tool.tokens) for tool in snapshot.running]


def _rows(
    tools: Sequence[CatalogTool],
    compressed: dict[str, int],
    full: dict[str, int],
    brief: dict[str, int],
    lists: ToolLists,
) -> dict[MeasurementPhase, list[TokenMetrics]]:
    """One row per tool and phase; a tool that is not registered costs nothing at the start."""
    now = datetime.now(UTC)
    tiers = lists.profiles().tier_of
    costs = {
        MeasurementPhase.BASELINE: {tool.name: tool.tokens for tool in tools},
        MeasurementPhase.AFTER_PHASE_1: compressed,
        MeasurementPhase.AFTER_PHASE_2: full,
        MeasurementPhase.AFTER_PHASE_3: brief,
    }
    return {
        phase: [
            TokenMetrics.of(
                tool.name, tool.tokens, min(tool.tokens, cost.get(tool.name, 0)), phase, tiers[tool.name], now
            )
            for tool in tools
        ]
        for phase, cost in costs.items()
    }


def _saving(before: int, after: int) -> dict[str, Any]:
    percent = round((before - after) / before * 100, 1) if before else 0.0
    return {"before": before, "after": after, "saved": before - after, "percent": percent}


def _servers(
    tools: Sequence[CatalogTool], compressed: dict[str, int], signatures: dict[str, int]
) -> list[dict[str, Any]]:
    by_server: dict[str, list[CatalogTool]] = defaultdict(list)
    for tool in tools:
        by_server[tool.server].append(tool)
    rows = [
        {
            "server": server,
            "tools": len(own),
            "baseline": sum(tool.tokens for tool in own),
            "schema": sum(compressed[tool.name] for tool in own),
            "signature": sum(signatures[tool.name] for tool in own),
        }
        for server, own in by_server.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["baseline"])), str(row["server"])))
