"""Rules on the dashboard: what they are, what each decides, and why a call would be refused. Changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.parts import page_number
from mcp_optimizer.dashboard.rule_pages import (
    LONGEST_ASKED,
    PAGE_OF_RULES,
    PATH,
    Answered,
    Asked,
    RulesPage,
    rules_page,
)
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.principal import ANYONE, LOCAL_PRINCIPAL, Principal, Risk
from mcp_optimizer.errors import CatalogError, OptimizerError
from mcp_optimizer.gateway.resolving import meant
from mcp_optimizer.policy.access import Policy
from mcp_optimizer.policy.explaining import explain, imagined, survey

if TYPE_CHECKING:
    from mcp_optimizer.db.api_keys import StoredKeys

_MOST_COUNTED = 20_000
"""Tools that are counted. More would push the decisions of calls out of memory."""

_KEY = "key:"


@dataclass(frozen=True)
class RuleSources:
    """The parts that the page of rules reads."""

    policy: Policy
    snapshot: Callable[[], Snapshot]
    keys: Callable[[], Awaitable[StoredKeys | None]]
    version: str


class RuleRoutes:
    """Responds with the page."""

    def __init__(self, sources: RuleSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        return [Route(PATH, self._guard.private(self._rules), methods=["GET"])]

    async def _rules(self, request: Request) -> Response:
        given = request.query_params
        caller, tool, server = (given.get(name, "").strip()[:LONGEST_ASKED] for name in ("caller", "tool", "server"))
        asked = Asked(caller, tool, server)
        principal = await self._principal(caller)
        page = await asyncio.to_thread(self._page, asked, principal, given.get("page", "1"), visitor_of(request))
        return HTMLResponse(page)

    async def _principal(self, name: str) -> Principal:
        """A caller as it is, if it is known; else as a token without limits would make it."""
        known = {"": LOCAL_PRINCIPAL, LOCAL_PRINCIPAL.name: LOCAL_PRINCIPAL, ANYONE.name: ANYONE}
        if name in known:
            return known[name]
        if name.startswith(_KEY):
            try:
                stored = await self._sources.keys()
                now_ms = time.time_ns() // 1_000_000
                key = None if stored is None else await stored.living_named(name.removeprefix(_KEY), now_ms)
            except CatalogError:
                key = None
            if key is not None:
                return key.principal
        return imagined(name, None, Risk.DESTRUCTIVE)

    def _page(self, asked: Asked, principal: Principal, wanted: str, visitor: Visitor) -> str:
        sources, snapshot = self._sources, self._sources.snapshot()
        running = snapshot.running
        records = (tool.record for tool in islice(running, _MOST_COUNTED))
        counted = survey(sources.policy, principal, ((one.server, one.name, one.hints) for one in records))
        answered, problem = self._answered(asked, principal, snapshot)
        rules = sources.policy.rulebook.rules
        last = max(1, -(-len(rules) // PAGE_OF_RULES))
        return rules_page(
            RulesPage(
                sources.version,
                visitor,
                rules,
                counted,
                principal.name,
                max(0, len(running) - _MOST_COUNTED),
                asked,
                answered,
                problem,
                page_number(wanted, last),
            )
        )

    def _answered(self, asked: Asked, principal: Principal, snapshot: Snapshot) -> tuple[Answered | None, str]:
        if not asked.tool:
            return None, ""
        try:
            tool = meant(snapshot, asked.tool, asked.server or None)
        except OptimizerError as error:
            return None, str(error)
        record = tool.record
        explanation = explain(self._sources.policy, principal, record.server, record.name, record.hints)
        return Answered(record.server, record.name, explanation), ""
