"""Tells clients what changed: lists, and resources that they watch.

In the newer era through the streams that clients listen on, in the older one to each connection. Changes that
come together are told once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from mcp_optimizer.errors import InvalidRequest, UpstreamError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.relay.connected import Clients
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_TOGETHER = 0.05
"""Seconds within which changes of one list are one change."""

_PATIENCE = 5.0
"""Seconds that an announcement waits for what it announces."""

_LISTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}

Watch = Callable[[str, str], Awaitable[None]]


class Changes:
    """What changed, on its way to whoever wants to know."""

    def __init__(self, bus: InMemorySubscriptionBus, clients: Clients) -> None:
        self._bus = bus
        self._clients = clients
        self._tasks = BackgroundTasks(logger, "A change could not be announced")
        self._announcing: set[str] = set()
        self._ready: dict[str, asyncio.Task[None]] = {}

    def announce(self, kind: str, ready: Coroutine[Any, Any, None] | None = None) -> None:
        """A list changed: tools, prompts or resources. `ready`: when the new one can be had."""
        if ready is not None:
            # At once: what it waits for may happen before the others have come together.
            self._ready[kind] = self._tasks.spawn(ready)
        if kind not in self._announcing:
            self._announcing.add(kind)
            self._tasks.spawn(self._announce(kind))

    async def _announce(self, kind: str) -> None:
        await asyncio.sleep(_TOGETHER)
        while (ready := self._ready.pop(kind, None)) is not None:
            await asyncio.wait({ready}, timeout=_PATIENCE)
            ready.cancel()
        self._announcing.discard(kind)
        await self._bus.publish(_LISTS[kind])
        for client in self._clients.connected():
            client.outbox.put(f"notifications/{kind}/list_changed")

    async def updated(self, uri: str) -> None:
        """A watched resource changed."""
        await self._bus.publish(ResourceUpdated(uri))
        for client in self._clients.connected():
            if uri in client.watched:
                client.outbox.put("notifications/resources/updated", {"uri": uri})


class Watches:
    """Which resources are watched, by how many, and under which URI their server knows them."""

    def __init__(self, watch: Watch, unwatch: Watch, limits: Limits = DEFAULT_LIMITS) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._most = limits.watched_resources
        self._watching: dict[str, int] = {}
        self._places: dict[str, tuple[str, str]] = {}

    async def begin(self, uri: str, place: tuple[str, str]) -> None:
        """`place`: the server and its own URI."""
        if uri not in self._watching:
            if len(self._watching) >= self._most:
                raise InvalidRequest(f"Clients watch {self._most:,} resources already, and there is no room for more.")
            await self._watch(*place)
            self._places[uri] = place
        self._watching[uri] = self._watching.get(uri, 0) + 1

    async def end(self, uri: str) -> None:
        if uri not in self._watching:
            return
        self._watching[uri] -= 1
        if not self._watching[uri]:
            del self._watching[uri]
            try:
                await self._unwatch(*self._places.pop(uri))
            except UpstreamError as error:
                logger.debug("A resource is no longer watched, and its server was not told: %s", error)

    def public(self, server: str, params: Mapping[str, Any]) -> str | None:
        """The URI under which clients know the resource that a server says has changed."""
        own = params.get("uri")
        return next((uri for uri, place in self._places.items() if place == (server, own)), None)
