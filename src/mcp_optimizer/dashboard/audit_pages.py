"""The audit page: shows acts by filters, one page at a time, within limits. Changes nothing.

Built by the composition root; `guard` decides who may see it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.page_parts import (
    choice,
    frame,
    named,
    page_number,
    pager,
    table,
    text_field,
    time_shown,
    tool_href,
)
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.audit import AuditQuery, StoredAudit

PATH = "/audit"
PAGE_OF_ACTS = 100
MOST_PAGES = 50
LONGEST_FILTER = 300
SPANS = {"1h": "the last hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days", "365d": "a year"}
DECISIONS = ("allow", "ask", "deny")
_CALL = "tools/call"


@dataclass(frozen=True)
class AuditFilters:
    """The filters for acts."""

    caller: str = ""
    tool: str = ""
    server: str = ""
    decision: str = ""
    since: str = "7d"


@dataclass(frozen=True)
class AuditPage:
    """One page of acts, newest first."""

    version: str
    visitor: Visitor
    entries: Sequence[AuditEntry]
    filters: AuditFilters = AuditFilters()
    until: str = ""
    """The time at which the visitor opened the first page, so that later acts do not shift the pages."""
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


def _filters(wanted: AuditFilters) -> Html:
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


_MOST_READ = 100_000
"""Rows that are examined for one page, whatever the filters are."""

_UNITS = {"h": 3_600, "d": 86_400}
_NOT_KEPT = (
    "The audit is read from the catalog database, and there is none (--database none), or it cannot be opened now."
)
_AUDIT_OFF = "Nothing is recorded: audit = false."
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class AuditSources:
    """The parts that the audit page reads."""

    audit: Callable[[], Awaitable[StoredAudit | None]]
    is_on: bool
    version: str


class AuditRoutes:
    """Responds with the audit page."""

    def __init__(self, sources: AuditSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard
        # One request at a time, because a filter without matches examines many rows.
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [Route(PATH, self._guard.private(self._acts), methods=["GET"])]

    async def _acts(self, request: Request) -> Response:
        given = request.query_params
        caller, tool, server = (given.get(name, "").strip()[:LONGEST_FILTER] for name in ("caller", "tool", "server"))
        decision, since = given.get("decision", ""), given.get("since", "")
        wanted = AuditFilters(
            caller, tool, server, decision if decision in DECISIONS else "", since if since in SPANS else "7d"
        )
        until, at = _until(given.get("until", "")), page_number(given.get("page", "1"), MOST_PAGES)
        entries, problem = await self._read(wanted, until, at * PAGE_OF_ACTS + 1)
        begin = (at - 1) * PAGE_OF_ACTS
        values = AuditPage(
            self._sources.version,
            visitor_of(request),
            entries[begin : begin + PAGE_OF_ACTS],
            wanted,
            str(until),
            at,
            len(entries) > begin + PAGE_OF_ACTS,
            problem,
        )
        return HTMLResponse(audit_page(values))

    async def _read(self, wanted: AuditFilters, until: int, limit: int) -> tuple[list[AuditEntry], str]:
        """The newest matching acts, newest first, and the problem if there is one."""
        async with self._turn:
            try:
                stored = await self._sources.audit()
                found = [] if stored is None else await stored.read(_query(wanted, until, limit))
            except CatalogError:
                return [], _NO_ANSWER
        problem = _NOT_KEPT if stored is None else "" if self._sources.is_on else _AUDIT_OFF
        return found[::-1], problem


def _query(wanted: AuditFilters, until: int, limit: int) -> AuditQuery:
    from mcp_optimizer.db.audit import AuditQuery

    return AuditQuery(
        since=time.time() - int(wanted.since[:-1]) * _UNITS[wanted.since[-1]],
        until=until,
        caller=wanted.caller or "*",
        tool=wanted.tool or "*",
        server=wanted.server or None,
        decision=wanted.decision or None,
        limit=limit,
        most_read=_MOST_READ,
    )


def _until(text: str) -> int:
    """The second before which acts are shown; by default the next one."""
    now = int(time.time()) + 1
    return min(int(text), now) if text.isascii() and text.isdecimal() and len(text) < 12 else now
