"""The audit on the dashboard: read by filters, a page at a time, within limits. Changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.audit_pages import (
    DECISIONS,
    LONGEST_FILTER,
    MOST_PAGES,
    PAGE_OF_ACTS,
    PATH,
    SPANS,
    AuditPage,
    Filters,
    audit_page,
)
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.parts import page_number
from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.audit import AuditQuery, StoredAudit

_MOST_READ = 100_000
"""Rows that one page looks at, whatever the filters are."""

_UNITS = {"h": 3_600, "d": 86_400}
_NOT_KEPT = (
    "The audit is read from the catalog database, and there is none (--database none), or it cannot be opened now."
)
_OFF = "Nothing is recorded: audit = false."
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class AuditSources:
    """The parts that the page of the audit reads."""

    audit: Callable[[], Awaitable[StoredAudit | None]]
    is_on: bool
    version: str


class AuditRoutes:
    """Responds with the page."""

    def __init__(self, sources: AuditSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard
        # A filter that fits nothing looks at many rows, so one at a time.
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [Route(PATH, self._guard.private(self._acts), methods=["GET"])]

    async def _acts(self, request: Request) -> Response:
        given = request.query_params
        caller, tool, server = (given.get(name, "").strip()[:LONGEST_FILTER] for name in ("caller", "tool", "server"))
        decision, since = given.get("decision", ""), given.get("since", "")
        wanted = Filters(
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

    async def _read(self, wanted: Filters, until: int, limit: int) -> tuple[list[AuditEntry], str]:
        """The newest acts that fit, newest first; and what is wrong."""
        async with self._turn:
            try:
                stored = await self._sources.audit()
                found = [] if stored is None else await stored.read(_query(wanted, until, limit))
            except CatalogError:
                return [], _NO_ANSWER
        problem = _NOT_KEPT if stored is None else "" if self._sources.is_on else _OFF
        return found[::-1], problem


def _query(wanted: Filters, until: int, limit: int) -> AuditQuery:
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
    """A second from which pages go back; by default the next."""
    now = int(time.time()) + 1
    return min(int(text), now) if text.isascii() and text.isdecimal() and len(text) < 12 else now
