"""The report as one self-contained page: no script, no network, no server. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from mcp_optimizer.dashboard.charts import share_bar
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.overview_pages import catalog_map
from mcp_optimizer.dashboard.page_parts import advice_list, assumptions, savings_chart, savings_figures, section, table
from mcp_optimizer.metrics.report import Report, ServerCost, ToolCost
from mcp_optimizer.metrics.usage import Usage
from mcp_optimizer.runtime.terminal_text import counted

_MOST_ROWS = 200
"""Rows of a table; a page with ten thousand helps no one."""


def style_sheet() -> str:
    return (resources.files("mcp_optimizer") / "dashboard" / "static" / "style.css").read_text(encoding="utf-8")


def report_page(report: Report) -> str:
    """The whole report."""
    usage = report.usage
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", "mcp-optimizer report"),
        # Our own style sheet: the only markup that is not made from elements.
        el("style", Html(style_sheet())),
    )
    body = [
        el("h1", "What tools cost, and what is saved"),
        _lead(report),
        section("What to do", advice_list(report.advice)) if report.advice else None,
        _usage(usage) if usage is not None and usage.events else None,
        el("p", usage.on_demand_told, class_="note") if usage is not None and usage.on_demand_told else None,
        el("p", usage.others_told, class_="note") if usage is not None and usage.others else None,
        section("Catalog", catalog_map(report.weights, links=False), note="Area is tokens; colour is the server."),
        el("div", section("Forms", _forms(report)), section("Phases", _phases(report)), class_="columns"),
        el("div", section("Profiles", _profiles(report)), section("Tiers", _tiers(report)), class_="columns"),
        section("Servers", _weights(report.servers, "server")),
        section("Tools", _weights(report.tools, "tool")),
    ]
    page = el("html", head, el("body", el("main", body), class_="report"), lang="en")
    return "<!doctype html>\n" + page


def _lead(report: Report) -> Html:
    return el(
        "p",
        el("strong", counted(report.tool_count, "tool")),
        f" of {counted(len(report.servers), 'server')}: ",
        el("strong", number(report.baseline_tokens)),
        " tokens of definitions. A client that sends them all puts ",
        el("strong", number(report.sent_tokens)),
        " into every prompt. With mcp-optimizer: ",
        el("strong", number(report.own_tokens)),
        ".",
        class_="lead",
    )


def _usage(usage: Usage) -> list[Child]:
    called = [
        (f"{row.tool} · {row.server}", number(row.activity.times), number(row.activity.failed),
         number(row.activity.tokens), number(row.activity.p50_ms), number(row.activity.p95_ms))
        for row in usage.called[:_MOST_ROWS]
    ]  # fmt: skip
    found = [(f"{row.tool} · {row.server}", number(row.times), number(row.called)) for row in usage.found[:_MOST_ROWS]]
    never = [
        (row.server, f"{row.tools:,} of {row.of:,}", number(row.tokens)) for row in usage.never_called[:_MOST_ROWS]
    ]
    return [
        section("Saved", savings_figures(usage), savings_chart(usage), assumptions(usage), note=usage.days),
        section("Called", table(("tool", "#times", "#failed", "#tokens", "#p50 ms", "#p95 ms"), called, "Calls")),
        el("div",
           section("Found", table(("tool", "#times", "#called"), found, "Found tools")),
           section("Never called", table(("server", "#tools", "#tokens"), never, "Tools never called")),
           class_="columns"),
    ]  # fmt: skip


def _forms(report: Report) -> Html:
    rows = [
        ("all tools, compressed schema", report.forms.schema),
        ("all tools, signatures", report.forms.signature),
        ("three largest, compressed schema", report.largest_forms.schema),
        ("three largest, signatures", report.largest_forms.signature),
        (f"profile {report.profile.value}, five-word descriptions", report.total),
    ]
    cells = [(label, number(row.before), number(row.after), f"{row.percent:.1f} %") for label, row in rows]
    return table(("what is sent", "#before", "#after", "#saved"), cells, "Forms of definitions")


def _phases(report: Report) -> Html:
    """With targets, if there are any."""
    if all(phase.target_reduction is None for phase in report.phases):
        cells = [(phase.phase_name, number(phase.total_reduction)) for phase in report.phases]
        return table(("phase", "#saved"), cells, "What each phase saves by itself")
    against = [
        (phase.phase_name, number(phase.total_reduction), number(phase.target_reduction or 0),
         "reached" if phase.achieved else "missed")
        for phase in report.phases
    ]  # fmt: skip
    return table(("phase", "#saved", "#target", ""), against, "Phases, each by itself, against their targets")


def _profiles(report: Report) -> Html:
    cells = [
        (cost.profile.value, number(cost.tools), number(cost.tokens), number(cost.budget) if cost.budget else "–",
         cost.measures)
        for cost in report.profiles
    ]  # fmt: skip
    return table(("profile", "#tools", "#tokens", "#budget", "how"), cells, "Profiles")


def _tiers(report: Report) -> Html:
    cells = [
        (tier.tier_name.value, number(tier.tool_count), number(tier.total_tokens), number(tier.average_per_tool))
        for tier in report.tiers
    ]
    return table(("tier", "#tools", "#tokens", "#a tool"), cells, "Tiers")


def _weights(costs: Sequence[ServerCost | ToolCost], title: str) -> list[Child]:
    heaviest = max((cost.baseline for cost in costs), default=0) or 1
    rows = [
        (cost.title, number(cost.baseline), share_bar(cost.baseline / heaviest, "without"),
         number(cost.schema), number(cost.signature))
        for cost in costs[:_MOST_ROWS]
    ]  # fmt: skip
    shown = table((title, "#tokens", "weight", "#schema", "#signature"), rows, f"Size by {title}", "bars")
    more = f"and {len(costs) - _MOST_ROWS:,} more" if len(costs) > _MOST_ROWS else None
    return [shown, el("p", more, class_="note") if more else None]
