"""Notifies clients of changes: lists, and resources they subscribe to.

Modern clients are notified on the streams they listen on, legacy clients on their connection. Changes that come
together are announced once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from mcp_optimizer.errors import InvalidRequest, UpstreamError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.relay.connected import Clients
from mcp_optimizer.relay.placed_bus import PlacedBus, ResourcePlace, UpdatedAt
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_TOGETHER = 0.05
"""Seconds within which changes of one list count as one."""

_PATIENCE = 5.0
"""Seconds that an announcement waits for the new list to be available."""

_LISTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}

Watch = Callable[[str, str], Awaitable[None]]


class Changes:
    """Collects changes and notifies interested clients."""

    def __init__(self, bus: PlacedBus, clients: Clients) -> None:
        self._bus = bus
        self._clients = clients
        self._tasks = BackgroundTasks(logger, "Cannot announce a change")
        self._announcing: set[str] = set()
        self._ready: dict[str, asyncio.Task[None]] = {}

    def announce(self, kind: str, ready: Coroutine[Any, Any, None] | None = None) -> None:
        """A list changed: tools, prompts or resources. `ready` completes when the new one is available."""
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

    async def updated(self, place: ResourcePlace) -> None:
        """A watched resource changed: those who watch it are told, each by the URI it asked for."""
        server, own = place
        await self._bus.publish(UpdatedAt(own, server))
        for client in self._clients.connected():
            for uri in [uri for uri, watched in client.watched.items() if watched == place]:
                client.outbox.put("notifications/resources/updated", {"uri": uri})


class Watches:
    """Which resources are watched, and by how many clients. Each is known by its server and its URI there."""

    def __init__(self, watch: Watch, unwatch: Watch, limits: Limits = DEFAULT_LIMITS) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._most = limits.watched_resources
        self._watching: dict[ResourcePlace, int] = {}

    async def begin(self, place: ResourcePlace) -> None:
        if place not in self._watching:
            if len(self._watching) >= self._most:
                raise InvalidRequest(f"Clients already subscribe to {self._most:,} resources, the maximum.")
            await self._watch(*place)
        self._watching[place] = self._watching.get(place, 0) + 1

    async def end(self, place: ResourcePlace) -> None:
        if place not in self._watching:
            return
        self._watching[place] -= 1
        if not self._watching[place]:
            del self._watching[place]
            try:
                await self._unwatch(*place)
            except UpstreamError as error:
                logger.debug("Cannot tell a server that a resource is no longer watched: %s", error)

    def has(self, place: ResourcePlace) -> bool:
        return place in self._watching
