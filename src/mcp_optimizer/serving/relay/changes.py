"""Notifies clients of changes to lists, and to resources that they subscribe to.

Modern clients are notified on the streams they listen on, legacy clients on their connection. Changes that arrive
together are announced once. Also subscribes to resources at the servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from mcp_optimizer.access.audit.recording import recording, used_by
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.errors import InvalidRequest, OptimizerError, UpstreamError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.relay.connected import Client, Clients, Context
from mcp_optimizer.serving.relay.places import PlacedBus, ResourcePlace, UpdatedAt, Watched, listening

logger = logging.getLogger(__name__)

_TOGETHER = 0.05
"""Changes of one list within this many seconds count as one."""

_PATIENCE = 5.0
"""Seconds that an announcement waits for the new list to be available."""

_LISTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}

Watch = Callable[..., Awaitable[None]]
"""Called with a server and a URI there, and with the caller if it is the caller's own server, or session."""


class Changes:
    """Collects changes and notifies interested clients."""

    def __init__(self, bus: PlacedBus, clients: Clients) -> None:
        self._bus = bus
        self._clients = clients
        self._tasks = BackgroundTasks(logger, "Cannot announce a change")
        self._announcing: set[tuple[str, str]] = set()
        self._ready: dict[tuple[str, str], asyncio.Task[None]] = {}

    def announce(self, kind: str, ready: Coroutine[Any, Any, None] | None = None, whose: str = "") -> None:
        """Announce a changed list: tools, prompts or resources. `ready` completes when the new list is available.
        `whose`: the caller, by id, whose own server's list it is; empty: everybody's.
        """
        change = (kind, whose)
        if ready is not None:
            # Started at once, because the event that it waits for may happen before the changes are collected.
            self._ready[change] = self._tasks.spawn(ready)
        if change not in self._announcing:
            self._announcing.add(change)
            self._tasks.spawn(self._announce(kind, whose))

    async def _announce(self, kind: str, whose: str) -> None:
        await asyncio.sleep(_TOGETHER)
        while (ready := self._ready.pop((kind, whose), None)) is not None:
            await asyncio.wait({ready}, timeout=_PATIENCE)
            ready.cancel()
        self._announcing.discard((kind, whose))
        await self._bus.publish_to(whose, _LISTS[kind])
        for client in self._clients.connected():
            if whose in ("", client.whose):
                client.outbox.put(f"notifications/{kind}/list_changed")

    async def updated(self, place: ResourcePlace) -> None:
        """Notify the clients that watch a changed resource, each by the URI that it asked for."""
        await self._bus.publish(UpdatedAt(place.uri, place.server, place.whose))
        for client in self._clients.connected():
            for uri in [uri for uri, watched in client.watched.items() if watched == place]:
                client.outbox.put("notifications/resources/updated", {"uri": uri})


class Watches:
    """Which resources are watched, and by how many clients. A resource is identified by server and URI there."""

    def __init__(self, watch: Watch, unwatch: Watch, limits: Limits = DEFAULT_LIMITS) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._most = limits.watched_resources
        self._watching: dict[ResourcePlace, int] = {}
        self._callers: dict[ResourcePlace, Caller] = {}

    async def begin(self, place: ResourcePlace, caller: Caller | None = None) -> None:
        """`caller`: whose own server or session it is."""
        if place not in self._watching:
            if len(self._watching) >= self._most:
                raise InvalidRequest(f"Clients already subscribe to {self._most:,} resources, the maximum.")
            await self._watch(place.server, place.uri, *([caller] if caller is not None else []))
            if caller is not None:
                self._callers[place] = caller
        self._watching[place] = self._watching.get(place, 0) + 1

    async def end(self, place: ResourcePlace) -> None:
        if place not in self._watching:
            return
        self._watching[place] -= 1
        if not self._watching[place]:
            del self._watching[place]
            caller = self._callers.pop(place, None)
            try:
                await self._unwatch(place.server, place.uri, *([caller] if caller is not None else []))
            except UpstreamError as error:
                logger.debug("Cannot tell a server that a resource is no longer watched: %s", error)

    def has(self, place: ResourcePlace) -> bool:
        return place in self._watching


Places = Callable[[Context, str], Awaitable[list[tuple[str, str]]]]
"""The places where the client of a request may read a URI."""


class Subscriptions:
    """The resources that clients subscribe to."""

    def __init__(
        self,
        watches: Watches,
        clients: Clients,
        places: Places,
        limits: Limits,
        trail: AuditTrail | None = None,
        whose: Callable[[str, Caller], str] = lambda _server, _caller: "",
    ) -> None:
        """`whose`: the caller whose own server answers, or the client whose session is no other client's; or empty."""
        self._whose = whose
        self._trail = trail
        self._watches = watches
        self._clients = clients
        self._places = places
        self._limits = limits
        self._tasks = BackgroundTasks(logger, "A client's wish to be told of changes could not be carried out")

    async def begin(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        """Subscribe a legacy client to a resource."""
        uri, client = params["uri"], self._clients.of(ctx)
        if client is not None and uri not in client.watched:
            if len(client.watched) >= self._limits.subscriptions:
                text = f"A client may watch {self._limits.subscriptions:,} resources at a time. Unsubscribe from some."
                raise MCPError(types.INVALID_PARAMS, text)
            # Set at once, so that concurrent subscriptions are counted.
            client.watched[uri] = None
            with contextlib.ExitStack() as undo:
                undo.callback(client.watched.pop, uri, None)
                place = await self._watch(ctx, uri)
                undo.pop_all()
            if uri in client.watched and client.watched[uri] is None:
                client.watched[uri] = place
            else:
                # The client unsubscribed or left meanwhile.
                await self._watches.end(place)
        return {}

    async def end(self, ctx: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        """Unsubscribe a legacy client from a resource."""
        uri, client = params["uri"], self._clients.of(ctx)
        if client is not None and (place := client.watched.pop(uri, None)) is not None:
            await self._watches.end(place)
        return {}

    async def listen(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A modern client listens; the resources it names are watched while it does."""
        wanted = (ctx.params or {}).get("notifications") or {}
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
        begun: list[Watched] = []
        try:
            for uri in uris if isinstance(uris, list) else []:
                # Resources that it may not read are left out: it is never notified of them, even if another client is.
                with contextlib.suppress(OptimizerError, MCPError):
                    begun.append((uri, await self._watch(ctx, uri)))
            honoured = [uri for uri, _ in begun]
            if isinstance(uris, list) and honoured != uris:
                notifications = {**wanted, "resourceSubscriptions": honoured}
                ctx = replace(ctx, params={**(ctx.params or {}), "notifications": notifications})
            with listening(begun, self._clients.caller(ctx).principal.id):
                return await call_next(ctx)
        finally:
            for _, place in begun:
                self._tasks.spawn(self._watches.end(place))

    def client_left(self, client: Client) -> None:
        """Stop watching what this client watched."""
        places = [place for place in client.watched.values() if place is not None]
        client.watched.clear()
        for place in places:
            self._tasks.spawn(self._watches.end(place))

    def changed(self, server: str, params: Mapping[str, Any], whose: str = "") -> ResourcePlace | None:
        """The resource that a server reports as changed; None if no client watches it. `whose`: the caller, by id,
        whose own server reports it, or the client, by key, whose session does.
        """
        place = ResourcePlace(server, str(params.get("uri")), whose)
        return place if self._watches.has(place) else None

    async def _watch(self, ctx: Context, uri: str) -> ResourcePlace:
        places = await self._places(ctx, uri)
        if not places:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        caller, (server, own) = self._clients.caller(ctx), places[0]
        place = ResourcePlace(server, own, self._whose(server, caller))
        lasting = caller.link.lasting if caller.link is not None else None
        alone = Caller(key=caller.key, link=lasting, principal=caller.principal) if place.whose else None
        with recording(self._trail, caller, "resources/subscribe") as record:
            record.about(server, used_by({"uri": uri}))
            await self._watches.begin(place, alone)
        return place
