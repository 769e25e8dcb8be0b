"""Serves the overview, the catalog, single tools, the search, the page's live events and `/metrics`. Changes nothing.

Built by the composition root with the parts it may read; `guard` decides who may see it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import Html, visible
from mcp_optimizer.dashboard.overview_pages import (
    DAYS,
    PAGE,
    RANGES,
    CatalogPage,
    FormShown,
    Overview,
    ServerRow,
    ToolPage,
    catalog_page,
    figures_part,
    overview_page,
    tool_page,
)
from mcp_optimizer.dashboard.page_parts import message_page, moment, page_number, subject, who_asked
from mcp_optimizer.dashboard.search_page import Finding, SearchPage, found_page, search_page
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.caller import Caller, Principal
from mcp_optimizer.domain.events import Event, ToolKey
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CatalogError, OptimizerError
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.metrics.advice import troubles
from mcp_optimizer.metrics.prometheus import Meters
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.metrics.usage import Usage
from mcp_optimizer.metrics.weights import Weight, by_server, total, weights

if TYPE_CHECKING:
    from mcp_optimizer.db.history import History


# Streams events to the page's script as they happen. A stream ends when its viewer's key or sign-in ends.

_KEEP_ALIVE = 15.0
_MOST_WATCHING = 100
"""Pages that may receive events at a time."""


class LiveEvents:
    """The stream of events, for a limited number of viewers."""

    def __init__(self, recorder: Recorder, guard: Guard, which: str = "") -> None:
        """`which`: the gateway of the events; other gateways have their own streams."""
        self._which = which
        self._recorder = recorder
        self._guard = guard
        self._ending = asyncio.Event()
        self._watching = 0

    def routes(self) -> list[Route]:
        return [Route("/events", self._guard.data(self._events))]

    def end(self) -> None:
        """Disconnects the viewers."""
        self._ending.set()

    async def _events(self, request: Request) -> Response:
        if self._watching >= _MOST_WATCHING:
            return PlainTextResponse("Too many viewers.", status_code=503, headers={"Retry-After": "60"})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(request), media_type="text/event-stream", headers=headers)

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        ending = asyncio.ensure_future(self._ending.wait())
        getting: asyncio.Task[Event] | None = None
        self._watching += 1
        try:
            with self._recorder.watched() as queue:
                yield ": hello\n\n"
                while not ending.done():
                    getting = getting or asyncio.ensure_future(queue.get())
                    await asyncio.wait({getting, ending}, timeout=_KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                    if not await self._guard.still_admits(request):
                        return
                    if getting.done():
                        event, getting = getting.result(), None
                        yield f"data: {json.dumps({**event_values(event), 'gateway': visible(self._which)})}\n\n"
                    else:
                        yield ": still here\n\n"
        finally:
            # Also runs if the viewer has left, which cancels this at any await.
            self._watching -= 1
            ending.cancel()
            if getting is not None:
                getting.cancel()


def event_values(event: Event) -> dict[str, Any]:
    """An event for the page's script; every name is made visible, as on the pages themselves."""
    which, href = subject(event)
    return {
        "at": moment(event.at),
        "kind": event.kind.value,
        "which": visible(which),
        "href": href,
        "client": visible(who_asked(event)),
        "tokens": event.tokens,
        "milliseconds": event.milliseconds,
        "outcome": event.outcome.value,
        "cached": event.cached,
        "truncated": event.truncated,
    }


# `/metrics`: the metrics for Prometheus, behind the guard.


def metrics_route(meters: Meters, guard: Guard) -> Route:
    async def metrics(request: Request) -> Response:
        # In a thread, because the first request may have to load the tokenizer.
        content, kind = await asyncio.to_thread(meters.exposition, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    return Route("/metrics", guard.data(metrics))


_DAY = 86_400
_MOST_EVENTS = 50_000
_LEAST_PAUSE, _LONGEST_PAUSE = 1.0, 5.0
_REST = 10
"""The pause before history is summed up again, as a multiple of the time that it took."""

_REMEMBERED = 5_000
_SHOWN = 15
_LONGEST_QUERY = 500
_FILES = {
    "style.css": "text/css",
    "dashboard.js": "text/javascript",
    "theme.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class DashboardSources:
    """The parts that the dashboard reads."""

    gateway: Gateway
    forms: ToolForms
    recorder: Recorder
    history: Callable[[], Awaitable[History | None]]
    usage: Callable[[Sequence[Event], int], Usage]
    """Summarizes events; the number says how many were left out because they are about other servers."""
    find: Finding
    own_tokens: Callable[[], int]
    trial: Callable[[CatalogTool, Request], Html | None]
    """The form to try a tool, for visitors who may."""
    version: str
    which: str = ""
    """Names this gateway for people, if there are several."""


@dataclass(frozen=True)
class _Summary:
    """What the history of some days says."""

    usage: Usage
    is_kept: bool
    """Whether there is a history, beyond what this process remembers."""
    before: Sequence[Event]
    """The last stored events."""
    fresh_until: float


class Dashboard:
    """Responds with pages."""

    def __init__(self, sources: DashboardSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)
        sources.recorder.listen(self._recent.append)
        self._summaries: dict[int, _Summary] = {}
        self._summing = asyncio.Lock()
        self._live = LiveEvents(sources.recorder, guard, sources.which)

    def routes(self) -> list[Route]:
        page, data = self._guard.page, self._guard.data
        return [
            Route("/", page(self._overview)),
            Route("/figures", data(self._figures)),
            Route("/catalog", page(self._catalog)),
            Route("/search", page(self._search)),
            Route("/tools/{server}/{tool:path}", page(self._tool)),
            *self._live.routes(),
            Route("/static/{name}", _static),
        ]

    def end(self) -> None:
        """Disconnects the viewers before the server stops."""
        self._live.end()

    async def _overview(self, request: Request) -> Response:
        return HTMLResponse(
            await asyncio.to_thread(overview_page, await self._values(_days(request)), visitor_of(request))
        )

    async def _figures(self, request: Request) -> Response:
        return HTMLResponse(await asyncio.to_thread(figures_part, await self._values(_days(request))))

    async def _values(self, days: int) -> Overview:
        sources, snapshot = self._sources, self._sources.gateway.snapshot
        summary = await self._summed_up(days)
        # In threads, as below: going through a hundred thousand tools takes longer than a call should wait.
        found, servers = await asyncio.to_thread(_rows, snapshot)
        own = await asyncio.to_thread(sources.own_tokens)
        seen = list(self._recent)[-_SHOWN:]
        recent = sorted(_with_newest(summary.before, seen), key=lambda event: event.at)[-_SHOWN:]
        usage, is_kept = summary.usage, summary.is_kept
        return Overview(sources.version, own, found, servers, usage, recent, is_kept, troubles(snapshot), days)

    async def _summed_up(self, days: int = DAYS) -> _Summary:
        """The summary of the last days of the history, at most a few seconds old."""
        async with self._summing:
            known = self._summaries.get(days)
            if known is not None and time.monotonic() <= known.fresh_until:
                return known
            started = time.monotonic()
            events, others, is_kept = await self._history(days)
            usage = await asyncio.to_thread(self._sources.usage, events, others)
            now = time.monotonic()
            pause = min(max(_LEAST_PAUSE, (now - started) * _REST), _LONGEST_PAUSE)
            before = events[-_SHOWN:] if is_kept else []
            found = self._summaries[days] = _Summary(usage, is_kept, before, now + pause)
            return found

    async def _history(self, days: int) -> tuple[list[Event], int, bool]:
        """The events, how many belong to other configurations, and whether history is kept."""
        history, since = await self._sources.history(), time.time() - days * _DAY
        if history is not None:
            try:
                written = await history.read(since, _MOST_EVENTS)
                return _with_newest(written, self._recent), await history.others(since), True
            except CatalogError:
                # Locked or missing: events remembered by this process are better than no page.
                pass
        return [event for event in self._recent if event.at >= since], 0, False

    async def _catalog(self, request: Request) -> Response:
        asked = request.query_params
        server, word = asked.get("server", ""), asked.get("word", "")[:_LONGEST_QUERY]
        wanted = asked.get("page", "1")
        usage = (await self._summed_up()).usage
        return HTMLResponse(
            await asyncio.to_thread(self._catalog_page, server, word, wanted, usage, visitor_of(request))
        )

    def _catalog_page(self, server: str, word: str, wanted: str, usage: Usage, visitor: Visitor) -> str:
        every = weights(self._sources.gateway.snapshot)
        kept = [w for w in every if server in ("", w.server) and word.lower() in w.tool.lower()]
        kept.sort(key=lambda weight: (-weight.tokens, weight.server, weight.tool))
        last = max(1, -(-len(kept) // PAGE))
        values = CatalogPage(
            self._sources.version,
            kept,
            max((weight.tokens for weight in every), default=0),
            {row.key: row.activity.times for row in usage.called},
            {row.key: row.times for row in usage.found},
            server,
            word,
            page_number(wanted, last),
        )
        return catalog_page(values, visitor)

    async def _tool(self, request: Request) -> Response:
        server, name = request.path_params["server"], request.path_params["tool"]
        snapshot = self._sources.gateway.snapshot
        position = snapshot.names.position(server, name)
        tool = snapshot.tools[position] if position is not None else None
        if tool is None:
            text = f"No running server called {server} has a tool called {name}."
            page = message_page("No such tool", text, version=self._sources.version, visitor=visitor_of(request))
            return HTMLResponse(page, status_code=404)
        usage = (await self._summed_up()).usage
        values = await asyncio.to_thread(self._tool_values, tool, usage)
        trial = await asyncio.to_thread(self._sources.trial, tool, request)
        return HTMLResponse(tool_page(values, visitor_of(request), trial))

    def _tool_values(self, tool: CatalogTool, usage: Usage) -> ToolPage:
        forms = self._sources.forms
        made = [(name, detail, forms.form(tool, detail)) for name, detail in _FORMS]
        shown = [FormShown(name, form.tokens, form.text(detail)) for name, detail, form in made]
        key: ToolKey = (tool.server, tool.record.name)
        called = next((row.activity for row in usage.called if row.key == key), None)
        return ToolPage(
            self._sources.version,
            tool.server,
            tool.record.name,
            tool.record.definition.sent().description or "",
            shown,
            [(step.technique, step.tokens) for step in forms.steps(tool)],
            called.times if called else 0,
            next((row.times for row in usage.found if row.key == key), 0),
            called.failed if called else 0,
            called.tokens_each if called else 0,
        )

    async def _search(self, request: Request) -> Response:
        query, sources = request.query_params.get("q", "").strip()[:_LONGEST_QUERY], self._sources
        values = SearchPage(sources.version, query)
        if query:
            values = await self._found(query, visitor_of(request).principal)
        return HTMLResponse(search_page(values, visitor_of(request)))

    async def _found(self, query: str, principal: Principal) -> SearchPage:
        """A search like any other: counted for the visitor, and limited to their share."""
        sources, caller = self._sources, Caller("dashboard", f"dashboard {principal.id}", principal=principal)
        try:
            sources.gateway.permissions.take_turn(caller)
            look = partial(found_page, sources.gateway, sources.find, sources.version, query)
            return await sources.gateway.in_turn(caller, look)
        except OptimizerError as error:
            return SearchPage(sources.version, query, problem=str(error))


def _days(request: Request) -> int:
    """The requested time, one of those that are offered."""
    wanted = request.query_params.get("days", "")
    return next((days for days, _ in RANGES if str(days) == wanted), DAYS)


_FORMS = (("As its server sent it", Detail.FULL), ("Compressed schema", Detail.SCHEMA), ("Signature", Detail.SIGNATURE))


def _rows(snapshot: Snapshot) -> tuple[list[Weight], list[ServerRow]]:
    """The cost of each tool and server; servers that do not run come first."""
    own = by_server(found := weights(snapshot))
    servers = [
        ServerRow(
            state.name,
            state.status.value,
            len(own.get(state.name, ())),
            total(own.get(state.name, ())),
            state.reason,
            state.restarts,
            state.protocol_version,
        )
        for state in snapshot.states.values()
    ]
    servers.sort(key=lambda row: (ServerStatus(row.status).is_in_order, -row.tokens, row.name))
    return found, servers


def _with_newest(written: Sequence[Event], seen: Iterable[Event]) -> list[Event]:
    """The stored events, and those of this process that are not written yet."""
    known = {_identity(event) for event in written[-2 * _REMEMBERED :]}
    return [*written, *(event for event in seen if _identity(event) not in known)]


def _identity(event: Event) -> tuple[object, ...]:
    return (round(event.at * 1_000), event.session, event.kind, event.server, event.tool, event.tokens)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _FILES:
        return Response(status_code=404)
    content = (resources.files("mcp_optimizer") / "dashboard" / "static" / name).read_bytes()
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=_FILES[name], headers=headers)
