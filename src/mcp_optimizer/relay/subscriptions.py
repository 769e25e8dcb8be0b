"""Which client wants to be told of changes to which resources, and may be.

Legacy clients subscribe one by one, modern ones listen on a stream. Called by the relay; what changes is announced by
`changes`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError

from mcp_optimizer.audit.recording import recording, used_by
from mcp_optimizer.audit.trail import AuditTrail
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.limits import Limits
from mcp_optimizer.relay.changes import Watches
from mcp_optimizer.relay.connected import Client, Clients, Context
from mcp_optimizer.relay.placed_bus import ResourcePlace, Watched, listening
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

Places = Callable[[Context, str], Awaitable[list[tuple[str, str]]]]
"""Where the client of a request may read a URI."""


class Subscriptions:
    """The resources that clients watch."""

    def __init__(
        self, watches: Watches, clients: Clients, places: Places, limits: Limits, trail: AuditTrail | None = None
    ) -> None:
        self._trail = trail
        self._watches = watches
        self._clients = clients
        self._places = places
        self._limits = limits
        self._tasks = BackgroundTasks(logger, "A client's wish to be told of changes could not be carried out")

    async def begin(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        """A legacy client subscribes."""
        uri, client = params["uri"], self._clients.of(ctx)
        if client is not None and uri not in client.watched:
            if len(client.watched) >= self._limits.subscriptions:
                text = f"A client may watch {self._limits.subscriptions:,} resources at a time. Unsubscribe from some."
                raise MCPError(types.INVALID_PARAMS, text)
            # At once, so that concurrent subscriptions are counted.
            client.watched[uri] = None
            with contextlib.ExitStack() as undo:
                undo.callback(client.watched.pop, uri, None)
                place = await self._watch(ctx, uri)
                undo.pop_all()
            if uri in client.watched and client.watched[uri] is None:
                client.watched[uri] = place
            else:
                # It unsubscribed or left meanwhile.
                await self._watches.end(place)
        return {}

    async def end(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        """A legacy client unsubscribes."""
        uri, client = params["uri"], self._clients.of(ctx)
        if client is not None and (place := client.watched.pop(uri, None)) is not None:
            await self._watches.end(place)
        return {}

    async def listen(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A modern client listens; the resources it names are watched as long as it does."""
        wanted = (ctx.params or {}).get("notifications") or {}
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
        begun: list[Watched] = []
        try:
            for uri in uris if isinstance(uris, list) else []:
                # What it may not read is left out, so that it never fires, although another client may listen for it.
                with contextlib.suppress(OptimizerError, MCPError):
                    begun.append((uri, await self._watch(ctx, uri)))
            honoured = [uri for uri, _ in begun]
            if isinstance(uris, list) and honoured != uris:
                notifications = {**wanted, "resourceSubscriptions": honoured}
                ctx = replace(ctx, params={**(ctx.params or {}), "notifications": notifications})
            with listening(begun):
                return await call_next(ctx)
        finally:
            for _, place in begun:
                self._tasks.spawn(self._watches.end(place))

    def client_left(self, client: Client) -> None:
        """Nobody waits any more for what this client watched."""
        places = [place for place in client.watched.values() if place is not None]
        client.watched.clear()
        for place in places:
            self._tasks.spawn(self._watches.end(place))

    def changed(self, server: str, params: Mapping[str, Any]) -> ResourcePlace | None:
        """The resource that a server reports as changed; None if nobody watches it."""
        own = params.get("uri")
        return (server, own) if isinstance(own, str) and self._watches.has((server, own)) else None

    async def _watch(self, ctx: Context, uri: str) -> ResourcePlace:
        places = await self._places(ctx, uri)
        if not places:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        with recording(self._trail, self._clients.caller(ctx), "resources/subscribe") as record:
            record.about(places[0][0], used_by({"uri": uri}))
            await self._watches.begin(places[0])
        return places[0]
