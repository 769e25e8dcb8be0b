"""The page of the audit, from values to HTML. Pure: knows no request and no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_optimizer.dashboard.fields import choice, named, text_field, time_shown
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.parts import frame, pager, table, tool_href
from mcp_optimizer.dashboard.visitor import Visitor
from mcp_optimizer.domain.audit import AuditEntry

PATH = "/audit"
PAGE_OF_ACTS = 100
MOST_PAGES = 50
LONGEST_FILTER = 300
SPANS = {"1h": "the last hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days", "365d": "a year"}
DECISIONS = ("allow", "ask", "deny")
_CALL = "tools/call"


@dataclass(frozen=True)
class Filters:
    """Which acts are wanted."""

    caller: str = ""
    tool: str = ""
    server: str = ""
    decision: str = ""
    since: str = "7d"


@dataclass(frozen=True)
class AuditPage:
    """A page of acts, newest first."""

    version: str
    visitor: Visitor
    entries: Sequence[AuditEntry]
    filters: Filters = Filters()
    until: str = ""
    """The moment at which somebody began to turn pages, so that these do not move."""
    number: int = 1
    has_more: bool = False
    problem: str = ""


def audit_page(values: AuditPage) -> str:
    lead = (
        "Who did what, what allowed it, and how it ended, newest first. Arguments are shown only if they are recorded."
    )
    return frame(
        "Audit",
        el("h1", "Audit"),
        el("p", lead, class_="lead"),
        _filters(values.filters),
        el("p", values.problem, class_="bad", role="alert") if values.problem else None,
        _acts(values),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def _filters(wanted: Filters) -> Html:
    decisions = [("", "any"), *((one, one) for one in DECISIONS)]
    return el(
        "form",
        text_field("Caller", "caller", wanted.caller, maxlength=LONGEST_FILTER, placeholder="key:*"),
        text_field("Tool", "tool", wanted.tool, maxlength=LONGEST_FILTER, placeholder="*delete*"),
        text_field("Server", "server", wanted.server, maxlength=LONGEST_FILTER),
        choice("Decision", "decision", decisions, wanted.decision),
        choice("Since", "since", list(SPANS.items()), wanted.since),
        el("p", el("button", "Filter", class_="main"), " ", el("a", "All", href=PATH)),
        action=PATH, method="get", class_="fields filters",
    )  # fmt: skip


def _acts(values: AuditPage) -> Child:
    if not values.entries:
        return None if values.problem else el("p", "Nothing that fits.", class_="empty")
    rows = [_row(entry) for entry in values.entries]
    titles = ("time (UTC)", "who", "what", "decision", "outcome", "#ms")
    asked = {name: getattr(values.filters, name) for name in ("caller", "tool", "server", "decision", "since")}
    last = min(MOST_PAGES, values.number + values.has_more)
    pages = pager(PATH, {**asked, "until": values.until}, values.number, last, "Pages of acts")
    is_end = values.has_more and values.number == MOST_PAGES
    end = el("p", "There is more: filter, or use mcp-optimizer audit.", class_="note") if is_end else None
    return [table(titles, rows, "Acts, newest first", "stack acts"), pages, end]


def _row(entry: AuditEntry) -> tuple[Child, ...]:
    return (
        time_shown(entry.at_ms),
        [named(entry.caller) or "nobody", _note(f"of {named(entry.tenant)}", entry.tenant),
         _note(named(entry.client), entry.client)],
        _what(entry),
        [el("span", entry.decision, class_="mark bad" if entry.decision == "deny" else "mark"),
         _note(named(entry.rule), entry.rule), _note(f"approved by {named(entry.approved_by)}", entry.approved_by)],
        el("span", named(entry.outcome), class_=None if entry.outcome == "ok" else "bad"),
        number(entry.milliseconds) if entry.milliseconds else "",
    )  # fmt: skip


def _what(entry: AuditEntry) -> list[Child]:
    is_tool = entry.method == _CALL and entry.server and entry.tool
    tool = el("a", named(entry.tool), href=tool_href(entry.server, entry.tool)) if is_tool else named(entry.tool)
    risk = el("span", entry.risk, class_="mark") if entry.risk else None
    said = (
        el("details", el("summary", "arguments"), el("pre", entry.arguments)) if entry.arguments is not None else None
    )
    where = " · ".join(filter(None, (named(entry.server), named(entry.method))))
    return [tool, " " if entry.tool else None, risk, _note(where, where), said]


def _note(text: str, about: str) -> Html | None:
    return el("div", text, class_="note") if about else None
