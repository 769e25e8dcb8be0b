"""Streams events to the page's script as they happen. A stream ends when its viewer's key or sign-in ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import visible
from mcp_optimizer.dashboard.page_parts import moment, subject, who_asked
from mcp_optimizer.domain.events import Event
from mcp_optimizer.metrics.recorder import Recorder

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
