"""The report as one self-contained page: no script, no network, no server. Pure."""

from __future__ import annotations

from importlib import resources
from typing import Any

from mcp_optimizer.dashboard.charts import share_bar
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.parts import (
    assumptions,
    catalog_map,
    marked,
    savings_chart,
    savings_figures,
    section,
    table,
)
from mcp_optimizer.metrics.usage import Weight
from mcp_optimizer.runtime.terminal_text import counted

_MOST_ROWS = 200
"""Rows of a table; a page of ten thousand helps nobody."""


def style_sheet() -> str:
    return (resources.files("mcp_optimizer") / "dashboard" / "static" / "style.css").read_text(encoding="utf-8")


def report_page(report: dict[str, Any]) -> str:
    """The complete report."""
    usage = report.get("usage")
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
    weights = [Weight(row["server"], row["name"], row["baseline"]) for row in report["tools"]]
    told = usage["advice"] if usage else report["advice"]
    body = [
        el("h1", "What tools cost, and what is saved"),
        _lead(report),
        _usage(usage) if usage and usage["events"] else None,
        section("Catalog", catalog_map(weights, links=False), note="Area is tokens; colour is the server."),
        el("div", section("Forms", _forms(report)), section("Phases", _phases(report)), class_="columns"),
        el("div", section("Profiles", _profiles(report)), section("Tiers", _tiers(report)), class_="columns"),
        section("What to do", el("ul", [el("li", marked(line)) for line in told], class_="advice")) if told else None,
        section("Servers", _weights(report["servers"], "server", "server")),
        section("Tools", _weights(report["tools"], "name", "tool")),
    ]
    page = el("html", head, el("body", el("main", body), class_="report"), lang="en")
    return "<!doctype html>\n" + page


def _lead(report: dict[str, Any]) -> Html:
    return el(
        "p",
        el("strong", counted(report["tool_count"], "tool")),
        f" of {counted(len(report['servers']), 'server')}: ",
        el("strong", number(report["baseline_tokens"])),
        " tokens of definitions in every prompt. With mcp-optimizer: ",
        el("strong", number(report["own_tokens"])),
        ".",
        class_="lead",
    )


def _usage(usage: dict[str, Any]) -> list[Child]:
    called = [
        (f"{row['tool']} · {row['server']}", number(row["times"]), number(row["failed"]), number(row["tokens"]),
         number(row["p50_ms"]), number(row["p95_ms"]))
        for row in usage["called"][:_MOST_ROWS]
    ]  # fmt: skip
    found = [
        (f"{row['tool']} · {row['server']}", number(row["times"]), number(row["called"]))
        for row in usage["found"][:_MOST_ROWS]
    ]
    never = [
        (row["server"], f"{row['tools']:,} of {row['of']:,}", number(row["tokens"]))
        for row in usage["never_called"][:_MOST_ROWS]
    ]
    note = f"{usage['since'][:10]} to {usage['until'][:10]}"
    return [
        section("Saved", savings_figures(usage), savings_chart(usage), assumptions(usage), note=note),
        section("Called", table(("tool", "#times", "#failed", "#tokens", "#p50 ms", "#p95 ms"), called, "Calls")),
        el("div",
           section("Found", table(("tool", "#times", "#called"), found, "Found tools")),
           section("Never called", table(("server", "#tools", "#tokens"), never, "Tools never called")),
           class_="columns"),
    ]  # fmt: skip


def _forms(report: dict[str, Any]) -> Html:
    rows = [
        ("all tools, compressed schema", report["forms"]["schema"]),
        ("all tools, signatures", report["forms"]["signature"]),
        ("three largest, compressed schema", report["largest_three"]["schema"]),
        ("three largest, signatures", report["largest_three"]["signature"]),
        (f"profile {report['profile']}, five-word descriptions", report["total"]),
    ]
    cells = [(label, number(row["before"]), number(row["after"]), f"{row['percent']:.1f} %") for label, row in rows]
    return table(("form", "#before", "#after", "#saved"), cells, "Forms of definitions")


def _phases(report: dict[str, Any]) -> Html:
    cells = [
        (p["phase_name"], number(p["total_reduction"]), number(p["target_reduction"]),
         "reached" if p["achieved"] else "missed")
        for p in report["phases"]
    ]  # fmt: skip
    return table(("phase", "#saved", "#target", ""), cells, "Phases against their targets")


def _profiles(report: dict[str, Any]) -> Html:
    cells = [
        (p["profile"], number(p["tools"]), number(p["tokens"]), number(p["budget"]) if p["budget"] else "–",
         p["measures"])
        for p in report["profiles"]
    ]  # fmt: skip
    return table(("profile", "#tools", "#tokens", "#budget", "how"), cells, "Profiles")


def _tiers(report: dict[str, Any]) -> Html:
    cells = [
        (t["tier_name"], number(t["tool_count"]), number(t["total_tokens"]), number(t["average_per_tool"]))
        for t in report["tiers"]
    ]
    return table(("tier", "#tools", "#tokens", "#a tool"), cells, "Tiers")


def _weights(entries: list[dict[str, Any]], key: str, title: str) -> list[Child]:
    heaviest = max((entry["baseline"] for entry in entries), default=0) or 1
    rows = [
        (entry[key], number(entry["baseline"]), share_bar(entry["baseline"] / heaviest, "without"),
         number(entry["schema"]), number(entry["signature"]))
        for entry in entries[:_MOST_ROWS]
    ]  # fmt: skip
    shown = table((title, "#tokens", "weight", "#schema", "#signature"), rows, f"Size by {title}", "bars")
    more = f"and {len(entries) - _MOST_ROWS:,} more" if len(entries) > _MOST_ROWS else None
    return [shown, el("p", more, class_="note") if more else None]
