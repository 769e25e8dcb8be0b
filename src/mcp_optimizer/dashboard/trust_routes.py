"""Pins on the dashboard: what waits for approval, with a diff, and forms that approve exactly what was shown.

Built by the composition root; `guard` decides who may see it, and who may send its forms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.dashboard.acts import Acts
from mcp_optimizer.dashboard.forms import form_of, sent_parts
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.parts import page_number
from mcp_optimizer.dashboard.trust_pages import (
    PAGE_OF_TOOLS,
    PATH,
    Change,
    TrustPage,
    WaitingServer,
    server_trust_href,
    trust_page,
)
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.domain.pins import Pins, ToolPin
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.trust.diffs import difference, digest, told
from mcp_optimizer.trust.keeper import Keeper
from mcp_optimizer.trust.overview import ServerOverview, overview
from mcp_optimizer.trust.pins import unpacked

_MOST_DIFFS = 20
"""Diffs of one page: each may have hundreds of lines."""

_CHANGED = "It is not what was shown: it changed meanwhile, or somebody else approved it. Look again."
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class TrustSources:
    """The parts that the page of pins uses."""

    keeper: Keeper
    acts: Acts
    version: str


class TrustRoutes:
    """Responds with pages, approves and resets."""

    def __init__(self, sources: TrustSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard
        # Going through all definitions takes long enough for one at a time.
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        page, action = self._guard.page, self._guard.action
        return [
            Route(PATH, page(self._all), methods=["GET"]),
            Route(f"{PATH}/{{rest:path}}", action(self._act), methods=["POST"]),
            # Somebody opens again the address of a page that a form led to.
            Route(f"{PATH}/{{rest:path}}", page(_back_to_all), methods=["GET"]),
        ]

    async def _all(self, request: Request) -> Response:
        return await self._page(request, request.query_params.get("server", ""))

    async def _page(self, request: Request, only: str, problem: str = "", status: int = 200) -> Response:
        keeper, visitor = self._sources.keeper, visitor_of(request)
        wanted = request.query_params.get("page", "1")
        async with self._turn:
            try:
                names = await keeper.servers()
                if only and only not in names:
                    problem = problem or f"Nothing of a server called {with_hidden_shown(only[:100])} was approved yet."
                    only, status = "", 404 if status == 200 else status
                pins = {name: await keeper.pins(name) for name in names}
            except CatalogError:
                pins, problem, status = {}, problem or _NO_ANSWER, 503
            page = await asyncio.to_thread(self._made, pins, only, wanted, visitor, problem)
        return HTMLResponse(page, status_code=status)

    def _made(self, pins: Mapping[str, Pins], only: str, wanted: str, visitor: Visitor, problem: str) -> str:
        servers = overview(pins, self._sources.keeper.modes)
        shown = [one for one in servers if not only or one.name == only]
        tools = max((len(one.tools) for one in shown), default=0) if only else 0
        at = page_number(wanted, max(1, -(-tools // PAGE_OF_TOOLS)))
        waiting = _waiting(shown, pins)
        now_ms = time.time_ns() // 1_000_000
        return trust_page(TrustPage(self._sources.version, visitor, now_ms, shown, waiting, only, at, problem))

    async def _act(self, request: Request) -> Response:
        """`/trust/SERVER/approve` and `/trust/SERVER/reset`."""
        server, *action = sent_parts(request, PATH)
        if action not in (["approve"], ["reset"]):
            return await self._page(request, "", "There is no such page.", 404)
        fields = await form_of(request) or {}
        try:
            if action == ["approve"]:
                return await self._approve(request, server, fields.get("version", ""))
            return await self._reset(request, server)
        except CatalogError:
            return await self._page(request, "", _NO_ANSWER, 503)

    async def _approve(self, request: Request, server: str, version: str) -> Response:
        keeper, visitor = self._sources.keeper, visitor_of(request)
        wanted, identity = _shown_as(await keeper.pins(server), version)
        approved = await keeper.approve(server, wanted, visitor.principal.name, identity) if wanted or identity else []
        now = (await keeper.pins(server)).approved if identity else None
        is_moved = now is not None and now.identity == identity
        if not approved and not is_moved:
            return await self._page(request, server, _CHANGED, 409)
        self._sources.acts.record(visitor, "trust/approve", server=server, tool=told(approved, is_moved=is_moved))
        return RedirectResponse(PATH, status_code=303)

    async def _reset(self, request: Request, server: str) -> Response:
        if not await self._sources.keeper.reset(server):
            return await self._page(request, server, "Nothing of this server was approved.", 404)
        self._sources.acts.record(visitor_of(request), "trust/reset", server=server)
        return RedirectResponse(PATH, status_code=303)


def _shown_as(pins: Pins, version: str) -> tuple[dict[str, str], str]:
    """The tools, and the command or URL, that a version stands for; nothing, if it is not what waits now."""
    hashes = {name: pin.hash for name, pin in pins.waiting_tools.items()}
    identity = pins.waiting.identity if pins.waiting is not None else ""
    if version == digest(hashes, identity):
        return hashes, identity
    # Tools of a server that is another one now are approved only together with it.
    alone = [] if identity else [name for name, found in hashes.items() if version == digest({name: found})]
    return {name: hashes[name] for name in alone}, ""


def _waiting(servers: Sequence[ServerOverview], pins: Mapping[str, Pins]) -> list[WaitingServer]:
    """What waits, of at most so many tools as one page shows."""
    found: list[WaitingServer] = []
    room = _MOST_DIFFS
    for server in servers:
        own = pins[server.name]
        count = len(own.waiting_tools) + (own.waiting is not None)
        if not count:
            continue
        changes = _changes(server, own, room)
        room -= len(changes)
        hashes = {name: pin.hash for name, pin in own.waiting_tools.items()}
        version = digest(hashes, own.waiting.identity if own.waiting is not None else "")
        found.append(WaitingServer(server.name, server.mode, changes, count, version))
    return found


def _changes(server: ServerOverview, pins: Pins, most: int) -> list[Change]:
    changes: list[Change] = []
    if pins.waiting is not None and most > 0:
        lines = [f"-{with_hidden_shown(server.approved.shown)}", f"+{with_hidden_shown(pins.waiting.shown)}"]
        changes.append(Change("its command or URL", "server changed", pins.waiting.at_ms, lines))
    for tool in server.tools:
        pin = pins.waiting_tools.get(tool.name)
        if pin is None:
            continue
        if len(changes) >= most:
            break
        # Without the two lines that name what is compared.
        lines = difference(unpacked(pins.tools.get(tool.name, ToolPin(""))), unpacked(pin))[2:]
        version = digest({tool.name: pin.hash}) if pins.waiting is None else ""
        changes.append(Change(tool.name, tool.state, pin.at_ms, lines, version, tool.notes))
    return changes


async def _back_to_all(request: Request) -> Response:
    server, *_ = sent_parts(request, PATH)
    return RedirectResponse(server_trust_href(server), status_code=303)
