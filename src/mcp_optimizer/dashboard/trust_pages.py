"""The pins page: the approved tools of servers, diffs of changes, and forms that approve the changes shown.

Built by the composition root; `guard` decides who may see it and who may submit its forms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.access.trust.pins import unpacked, versions_of
from mcp_optimizer.access.trust.review import (
    APPROVED,
    ServerOverview,
    ToolOverview,
    difference,
    digest,
    overview,
    titled,
    told,
)
from mcp_optimizer.dashboard.guard import Guard, form_of, sent_parts
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.page_parts import (
    ago,
    button,
    confirmed,
    frame,
    hidden,
    named,
    page_number,
    pager,
    section,
    state_mark,
    table,
    tool_href,
    word,
)
from mcp_optimizer.dashboard.visitor import ActRecorder, Visitor, visitor_of
from mcp_optimizer.domain.hidden_text import with_hidden_shown
from mcp_optimizer.domain.pins import Pins, ServerPin, ToolPin, TrustMode
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.terminal_text import counted

PATH = "/trust"
PAGE_OF_TOOLS = 50
_MOST_SERVERS = 500
_SHORT = 20
_KINDS = {"+": "added", "-": "removed", "@": "place"}
_EFFECTS = {
    TrustMode.BLOCK: "neither found nor called until approved",
    TrustMode.WARN: "used all the same",
    TrustMode.OFF: "not compared any more",
}


@dataclass(frozen=True)
class PinChange:
    """A change that waits for approval: of a tool, or of the command or URL of a server."""

    title: str
    state: str
    since_ms: int
    lines: Sequence[str]
    version: str = ""
    """Identifies exactly the state that is shown. Empty: it cannot be approved alone."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class WaitingServer:
    """The changes of one server that wait for approval."""

    name: str
    mode: TrustMode | None
    changes: Sequence[PinChange]
    """Limited to what one page shows."""
    waiting: int
    """How many there are."""
    version: str
    """Identifies all waiting changes together."""


@dataclass(frozen=True)
class TrustPage:
    """All servers, or one of them."""

    version: str
    visitor: Visitor
    now_ms: int
    servers: Sequence[ServerOverview]
    waiting: Sequence[WaitingServer]
    only: str = ""
    """The only server that is shown, with all of its tools."""
    number: int = 1
    problem: str = ""


def trust_page(values: TrustPage) -> str:
    title = f"Tools of {named(values.only)}" if values.only else "Trust"
    lead = "The first listing of a server counts as approved. What changed since then, or is new, is shown here."
    return frame(
        title,
        el("h1", title),
        el("p", [lead, " ", el("a", "All servers", href=PATH)] if values.only else lead, class_="lead"),
        el("p", values.problem, class_="bad", role="alert") if values.problem else None,
        [_waiting(one, values) for one in values.waiting],
        _tools(values) if values.only else _servers(values),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def server_trust_href(server: str) -> str:
    return f"{PATH}?{urlencode({'server': server}, errors='replace')}"


def _action(server: str, what: str) -> str:
    return f"{PATH}/{quote(server, safe='', errors='replace')}/{what}"


def _waiting(one: WaitingServer, values: TrustPage) -> Html:
    effect = _EFFECTS.get(one.mode, "") if one.mode is not None else "of a server that is not in the server file"
    note = f"{counted(one.waiting, 'change')}; {effect}"
    rest = one.waiting - len(one.changes)
    elsewhere = "on other pages" if values.only else el("a", "of this server", href=server_trust_href(one.name))
    more = el("p", f"and {rest:,} more ", elsewhere, class_="note") if rest > 0 else None
    approve_all = None
    if values.visitor.can_manage:
        label = f"Approve all {one.waiting:,}" if one.waiting > 1 else "Approve"
        about = f"everything of {named(one.name)}"
        buttons = [
            button(label, about, _action(one.name, "approve"), hidden("version", one.version), is_main=True),
            # The list of all its tools has its own button.
            None if values.only else _reset(one.name),
        ]
        approve_all = el("div", buttons, class_="actions")
    return section(
        named(one.name),
        [_change(change, one, values) for change in one.changes],
        more,
        approve_all,
        note=note,
        css="waits",
    )


def _change(change: PinChange, server: WaitingServer, values: TrustPage) -> Html:
    # A single change needs no button of its own: the button for all covers it.
    is_separate = values.visitor.can_manage and bool(change.version) and server.waiting > 1
    approve = (
        button("Approve", named(change.title), _action(server.name, "approve"), hidden("version", change.version))
        if is_separate
        else None
    )
    heading = el(
        "div",
        el("h3", named(change.title), " ", state_mark(change.state)),
        el("p", ago(change.since_ms, values.now_ms), class_="note"),
        approve,
        class_="title",
    )
    notes = [el("p", el("span", note, class_="mark bad"), class_="note") for note in change.notes]
    return el("article", heading, notes, el("pre", [_line(line) for line in change.lines], class_="diff", tabindex="0"))


def _line(line: str) -> Html:
    kind = _KINDS.get(line[:1])
    return el("span", f"{line}\n", class_=kind)


def _reset(server: str) -> Html:
    question = "Forget the approvals. The server's next list counts as approved, without a review."
    return confirmed("Reset", named(server), question, _action(server, "reset"))


def _servers(values: TrustPage) -> Html:
    rows = [
        (
            el("a", named(server.name), href=server_trust_href(server.name)),
            state_mark(_state(server)),
            number(len(server.tools)),
            word(server.mode.value) if server.mode is not None else "–",
            el("code", named(server.approved.shown, 160)),
            ago(server.approved.at_ms, values.now_ms),
            [el("div", note, class_="note") for note in _noted(server)] or "–",
        )
        for server in values.servers[:_MOST_SERVERS]
    ]
    titles = ("server", "state", "#tools", "mode", "approved as", "since", "notes")
    if not rows:
        return section("Servers", el("p", "No server has listed tools yet.", class_="empty"))
    more = len(values.servers) - _MOST_SERVERS
    note = f"and {more:,} more: mcp-optimizer trust list" if more > 0 else None
    return section("Servers", table(titles, rows, "Servers and approvals", "stack"), note=note)


def _state(server: ServerOverview) -> str:
    if server.waiting is not None:
        return "server changed"
    return "changed" if server.unapproved else APPROVED


def _noted(server: ServerOverview) -> list[str]:
    """Noteworthy facts, in few lines."""
    found = [f"{named(tool.name, 60)}: {'; '.join(tool.notes)}" for tool in server.tools if tool.notes]
    return [named(line, 200) for line in found[:3]] + ([f"and {len(found) - 3:,} more"] if len(found) > 3 else [])


def _tools(values: TrustPage) -> Html | None:
    server = next((one for one in values.servers if one.name == values.only), None)
    if server is None:
        return None
    begin = (values.number - 1) * PAGE_OF_TOOLS
    rows: list[tuple[Child, ...]] = [
        (
            el("a", named(tool.name), href=tool_href(server.name, tool.name)),
            state_mark(tool.state),
            ago(tool.since_ms, values.now_ms),
            word(tool.by or "–") if len(tool.by) <= _SHORT else named(tool.by),
            _notes(tool),
        )
        for tool in server.tools[begin : begin + PAGE_OF_TOOLS]
    ]
    last = max(1, -(-len(server.tools) // PAGE_OF_TOOLS))
    pages = pager(PATH, {"server": server.name}, values.number, last, "Pages of tools")
    reset = el("div", _reset(server.name), class_="actions after") if values.visitor.can_manage else None
    titles = ("tool", "state", "since", "by", "notes")
    return section("All of its tools", table(titles, rows, "Tools and their state", "stack"), pages, reset)


def _notes(tool: ToolOverview) -> Child:
    return [el("div", named(note, 200), class_="note") for note in tool.notes] or "–"


_MOST_DIFFS = 20
"""Diffs on one page, because each may have hundreds of lines."""

_NOT_AS_SHOWN = "It has changed since it was shown, or has been approved already. Look again."
_NO_ANSWER = "The database does not answer. Try again shortly."


@dataclass(frozen=True)
class TrustSources:
    """The parts that the pins page uses."""

    keeper: PinKeeper
    acts: ActRecorder
    version: str


class TrustRoutes:
    """Responds with pages, approves and resets."""

    def __init__(self, sources: TrustSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard
        # One request at a time, because going through all definitions takes long.
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        page, action = self._guard.private, self._guard.action
        return [
            Route(PATH, page(self._all), methods=["GET"]),
            Route(f"{PATH}/{{rest:path}}", action(self._act), methods=["POST"]),
            # For visitors who reopen the address of a form's response.
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
        waiting = _waiting_of(shown[0], pins[only], at) if only and shown else _all_waiting(shown, pins)
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
            return await self._page(request, server, _NOT_AS_SHOWN, 409)
        self._sources.acts.record(visitor, "trust/approve", server=server, tool=told(approved, is_moved=is_moved))
        return RedirectResponse(PATH, status_code=303)

    async def _reset(self, request: Request, server: str) -> Response:
        if not await self._sources.keeper.reset(server):
            return await self._page(request, server, "Nothing of this server was approved.", 404)
        self._sources.acts.record(visitor_of(request), "trust/reset", server=server)
        return RedirectResponse(PATH, status_code=303)


def _shown_as(pins: Pins, version: str) -> tuple[dict[str, str], str]:
    """The tools, and the command or URL, that a version stands for; empty if it is not what waits now."""
    hashes = versions_of(pins.waiting_tools)
    identity = pins.waiting.identity if pins.waiting is not None else ""
    if version == digest(hashes, identity):
        return hashes, identity
    # If the server's identity has changed, its tools are approved only together with it.
    alone = [] if identity else [name for name, found in hashes.items() if version == digest({name: found})]
    return {name: hashes[name] for name in alone}, ""


def _waiting_first(server: ServerOverview) -> ServerOverview:
    return replace(server, tools=tuple(sorted(server.tools, key=lambda tool: tool.state == APPROVED)))


def _all_waiting(servers: Sequence[ServerOverview], pins: Mapping[str, Pins]) -> list[WaitingServer]:
    """The waiting changes of all servers, limited to the tools that fit on one page."""
    found: list[WaitingServer] = []
    room = _MOST_DIFFS
    for server in servers:
        changes = [*_of_server(server, pins[server.name]), *_changes(server.tools, pins[server.name])] if room else []
        found += _server(server, pins[server.name], [change() for change in changes[:room]])
        room -= len(changes[:room])
    return found


def _waiting_of(server: ServerOverview, pins: Pins, page: int) -> list[WaitingServer]:
    """The waiting changes among the tools on one page of a server."""
    tools = server.tools[(page - 1) * PAGE_OF_TOOLS : page * PAGE_OF_TOOLS]
    changes = [*(_of_server(server, pins) if page == 1 else []), *_changes(tools, pins)]
    return _server(server, pins, [change() for change in changes])


def _server(server: ServerOverview, pins: Pins, changes: Sequence[PinChange]) -> list[WaitingServer]:
    count = len(pins.waiting_tools) + (pins.waiting is not None)
    hashes = versions_of(pins.waiting_tools)
    version = digest(hashes, pins.waiting.identity if pins.waiting is not None else "")
    return [WaitingServer(server.name, server.mode, changes, count, version)] if count else []


def _of_server(server: ServerOverview, pins: Pins) -> list[Callable[[], PinChange]]:
    """The changes of its command or URL, and of its instructions."""
    moved = [] if pins.waiting is None else [partial(_server_change, server.approved, pins.waiting)]
    said = [server.instructions] if server.instructions is not None else []
    return [*moved, *_changes(said, pins)]


def _server_change(before: ServerPin, now: ServerPin) -> PinChange:
    lines = [f"-{with_hidden_shown(before.shown)}", f"+{with_hidden_shown(now.shown)}"]
    return PinChange("its command or URL", "server changed", now.at_ms, lines)


def _changes(tools: Iterable[ToolOverview], pins: Pins) -> list[Callable[[], PinChange]]:
    """Computed only for the changes that are shown, because comparing takes a while."""
    return [partial(_change_of_tool, tool, pins) for tool in tools if tool.name in pins.waiting_tools]


def _change_of_tool(tool: ToolOverview, pins: Pins) -> PinChange:
    pin = pins.waiting_tools[tool.name]
    # Without the two lines that name the compared texts.
    lines = difference(unpacked(pins.tools.get(tool.name, ToolPin(""))), unpacked(pin))[2:]
    version = digest({tool.name: pin.version}) if pins.waiting is None else ""
    return PinChange(titled(tool.name), tool.state, pin.at_ms, lines, version, tool.notes)


async def _back_to_all(request: Request) -> Response:
    server, *_ = sent_parts(request, PATH)
    return RedirectResponse(server_trust_href(server), status_code=303)
