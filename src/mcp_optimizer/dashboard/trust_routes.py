"""Pins on the dashboard: what waits for approval, with a diff, and forms that approve exactly what was shown.

Built by the composition root; `guard` decides who may see it, and who may send its forms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from mcp_optimizer.domain.pins import Pins, ServerPin, ToolPin
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.trust.diffs import difference, digest, titled, told
from mcp_optimizer.trust.keeper import Keeper
from mcp_optimizer.trust.overview import APPROVED, ServerOverview, ToolOverview, overview
from mcp_optimizer.trust.pins import unpacked, versions_of

_MOST_DIFFS = 20
"""Diffs of one page: each may have hundreds of lines."""

_CHANGED = "It has changed since it was shown, or has been approved already. Look again."
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
        page, action = self._guard.private, self._guard.action
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
        shown = [_waiting_first(one) for one in servers if one.name == only] if only else servers
        tools = len(shown[0].tools) if only and shown else 0
        at = page_number(wanted, max(1, -(-tools // PAGE_OF_TOOLS)))
        waiting = _waiting_of(shown[0], pins[only], at) if only and shown else _waiting(shown, pins)
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
    hashes = versions_of(pins.waiting_tools)
    identity = pins.waiting.identity if pins.waiting is not None else ""
    if version == digest(hashes, identity):
        return hashes, identity
    # Tools of a server that is another one now are approved only together with it.
    alone = [] if identity else [name for name, found in hashes.items() if version == digest({name: found})]
    return {name: hashes[name] for name in alone}, ""


def _waiting_first(server: ServerOverview) -> ServerOverview:
    return replace(server, tools=tuple(sorted(server.tools, key=lambda tool: tool.state == APPROVED)))


def _waiting(servers: Sequence[ServerOverview], pins: Mapping[str, Pins]) -> list[WaitingServer]:
    """What waits of all servers: at most so many tools as one page shows."""
    found: list[WaitingServer] = []
    room = _MOST_DIFFS
    for server in servers:
        changes = [*_of_server(server, pins[server.name]), *_changes(server.tools, pins[server.name])] if room else []
        found += _server(server, pins[server.name], [change() for change in changes[:room]])
        room -= len(changes[:room])
    return found


def _waiting_of(server: ServerOverview, pins: Pins, page: int) -> list[WaitingServer]:
    """What waits among the tools on one page of a server."""
    tools = server.tools[(page - 1) * PAGE_OF_TOOLS : page * PAGE_OF_TOOLS]
    changes = [*(_of_server(server, pins) if page == 1 else []), *_changes(tools, pins)]
    return _server(server, pins, [change() for change in changes])


def _server(server: ServerOverview, pins: Pins, changes: Sequence[Change]) -> list[WaitingServer]:
    count = len(pins.waiting_tools) + (pins.waiting is not None)
    hashes = versions_of(pins.waiting_tools)
    version = digest(hashes, pins.waiting.identity if pins.waiting is not None else "")
    return [WaitingServer(server.name, server.mode, changes, count, version)] if count else []


def _of_server(server: ServerOverview, pins: Pins) -> list[Callable[[], Change]]:
    """Its command or URL, and its instructions."""
    moved = [] if pins.waiting is None else [partial(_server_change, server.approved, pins.waiting)]
    said = [server.instructions] if server.instructions is not None else []
    return [*moved, *_changes(said, pins)]


def _server_change(before: ServerPin, now: ServerPin) -> Change:
    lines = [f"-{with_hidden_shown(before.shown)}", f"+{with_hidden_shown(now.shown)}"]
    return Change("its command or URL", "server changed", now.at_ms, lines)


def _changes(tools: Iterable[ToolOverview], pins: Pins) -> list[Callable[[], Change]]:
    """Made only for those that are shown, because comparing takes a while."""
    return [partial(_change, tool, pins) for tool in tools if tool.name in pins.waiting_tools]


def _change(tool: ToolOverview, pins: Pins) -> Change:
    pin = pins.waiting_tools[tool.name]
    # Without the two lines that name what is compared.
    lines = difference(unpacked(pins.tools.get(tool.name, ToolPin(""))), unpacked(pin))[2:]
    version = digest({tool.name: pin.version}) if pins.waiting is None else ""
    return Change(titled(tool.name), tool.state, pin.at_ms, lines, version, tool.notes)


async def _back_to_all(request: Request) -> Response:
    server, *_ = sent_parts(request, PATH)
    return RedirectResponse(server_trust_href(server), status_code=303)
