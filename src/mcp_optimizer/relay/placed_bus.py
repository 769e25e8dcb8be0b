"""Tells listeners of a changed resource: those that watch it on its server, each by the URI it asked for.

The SDK's bus knows only URIs, and one URI can mean different servers for different callers. The relay publishes; the
SDK subscribes, once for each stream that a modern client listens on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent

ResourcePlace = tuple[str, str]
"""A server, and the URI of a resource there."""

Watched = tuple[str, ResourcePlace]
"""The URI that a client asked for, and what it means for that client."""

_WATCHED: ContextVar[frozenset[Watched]] = ContextVar("watched", default=frozenset())


@dataclass(frozen=True)
class UpdatedAt(ResourceUpdated):
    """A resource changed: `uri` is its server's own."""

    server: str


@contextmanager
def listening(watched: Iterable[Watched]) -> Iterator[None]:
    """Whoever subscribes within watches these resources, and no others."""
    token = _WATCHED.set(frozenset(watched))
    try:
        yield
    finally:
        _WATCHED.reset(token)


class PlacedBus(InMemorySubscriptionBus):
    """The SDK's bus, on which a changed resource has a place."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        watched = _WATCHED.get()

        def placed(event: ServerEvent) -> None:
            if not isinstance(event, ResourceUpdated):
                listener(event)
            elif isinstance(event, UpdatedAt):
                for uri, place in watched:
                    if place == (event.server, event.uri):
                        listener(ResourceUpdated(uri))

        return super().subscribe(placed)
