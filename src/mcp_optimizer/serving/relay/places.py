"""Decides which server a URI belongs to: the one that lists it, otherwise the one with its scheme and authority. Pure.

A template that matches everything must not answer for another server's resources. Called by the directory. Also
contains the bus that reports a changed resource only to clients that watch it at that server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent
from mcp.shared.uri_template import UriTemplate

from mcp_optimizer.runtime.patterns import regex

_BEGINNING = regex(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?")
_LONGEST_BEGINNING = 2_000
_MOST_TRIED = 500
"""Maximum number of one server's templates that are compared with a URI."""


@dataclass(frozen=True)
class Place:
    """The start of a URI. `authority` is None if a template leaves it open."""

    scheme: str
    authority: str | None


def place_of(uri: str) -> Place | None:
    """A URI's scheme and authority (often ""); None if it is not a URI."""
    match = _BEGINNING.match(uri, 0, _LONGEST_BEGINNING)
    return Place(match[1].lower(), (match[2] or "").lower()) if match else None


def place_of_template(template: str) -> Place | None:
    """The literal scheme and authority of a template; None if it has no literal scheme."""
    written, brace, _ = template.partition("{")
    match = _BEGINNING.match(written, 0, _LONGEST_BEGINNING)
    if match is None:
        return None
    # "x://a{b}" may become any authority that begins with a; "x:{b}" may become "x://anything".
    is_whole = not brace or match.end() < len(written)
    return Place(match[1].lower(), (match[2] or "").lower() if is_whole else None)


def fits(template: str, uri: str) -> bool:
    written = template.partition("{")[0]
    if not uri.startswith(written):
        return False
    parsed = _parsed(template)
    return parsed is not None and parsed.match(uri) is not None


@lru_cache(maxsize=1_024)
def _parsed(template: str) -> UriTemplate | None:
    try:
        return UriTemplate.parse(template)
    except ValueError:
        return None


@dataclass(frozen=True)
class Holding:
    """What one server's lists say about its URIs."""

    places: frozenset[Place] = frozenset()
    templates: tuple[tuple[str, Place | None], ...] = ()

    @classmethod
    def of(cls, resources: Iterable[str], templates: Iterable[str]) -> Holding:
        written = tuple((template, place_of_template(template)) for template in templates)
        found = {*map(place_of, resources), *(place for _, place in written)}
        return cls(frozenset(place for place in found if place is not None), written)

    def owns(self, place: Place) -> bool:
        return place in self.places

    def has_fitting(self, uri: str, scheme: str | None) -> bool:
        """Whether a template matches; with a scheme, only templates that contain it literally count."""
        tried = 0
        for template, place in self.templates:
            if scheme is None or (place is not None and place.scheme == scheme):
                tried += 1
                if fits(template, uri):
                    return True
            if tried >= _MOST_TRIED:
                break
        return False


def answering(uri: str, holdings: Mapping[str, Holding]) -> list[str]:
    """The servers to ask for a URI that none of them lists, most likely first.

    First those that list other URIs of the same scheme and authority, or have both in a template; if there are none,
    those with a matching template of that scheme; then those with any matching template; then all.
    """
    return claiming(uri, holdings) or list(holdings)


def claiming(uri: str, holdings: Mapping[str, Holding]) -> list[str]:
    """Like `answering`, but only servers whose lists say something about the URI."""
    place = place_of(uri)
    if place is not None:
        if owners := [server for server, holding in holdings.items() if holding.owns(place)]:
            return sorted(owners, key=lambda server: not holdings[server].has_fitting(uri, place.scheme))
        if fitting := [server for server, holding in holdings.items() if holding.has_fitting(uri, place.scheme)]:
            return fitting
    return [server for server, holding in holdings.items() if holding.has_fitting(uri, None)]


class ResourcePlace(NamedTuple):
    """A resource: its server, its URI there, and whose own server it is, if the entry acts as each caller, or the key
    of the client for which the server runs, if it runs for each client.
    """

    server: str
    uri: str
    whose: str = ""


Watched = tuple[str, ResourcePlace]
"""The URI that a client asked for, and the resource that it means for that client."""

_LISTENER: ContextVar[str] = ContextVar("listener", default="")
"""The caller that subscribes, by id."""

_MEANT_FOR: ContextVar[str] = ContextVar("meant_for", default="")
"""The caller whose clients an event is for; empty: all."""

_WATCHED: ContextVar[frozenset[Watched]] = ContextVar("watched", default=frozenset())


@dataclass(frozen=True)
class UpdatedAt(ResourceUpdated):
    """A changed resource; `uri` is the one at its server."""

    server: str
    whose: str = ""

    @property
    def place(self) -> ResourcePlace:
        return ResourcePlace(self.server, self.uri, self.whose)


@contextmanager
def listening(watched: Iterable[Watched], whose: str = "") -> Iterator[None]:
    """Subscriptions made within this block watch these resources and no others, and hear of the lists of this caller's
    own servers.
    """
    token, listener = _WATCHED.set(frozenset(watched)), _LISTENER.set(whose)
    try:
        yield
    finally:
        _WATCHED.reset(token)
        _LISTENER.reset(listener)


class PlacedBus(InMemorySubscriptionBus):
    """The SDK's bus, filtering changed resources by server as well as URI, and changed lists by caller."""

    async def publish_to(self, whose: str, event: ServerEvent) -> None:
        """Publish a changed list; if it is of a caller's own server, only to that caller's clients."""
        token = _MEANT_FOR.set(whose)
        try:
            await self.publish(event)
        finally:
            _MEANT_FOR.reset(token)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        watched, whose = _WATCHED.get(), _LISTENER.get()

        def placed(event: ServerEvent) -> None:
            if not isinstance(event, ResourceUpdated):
                if _MEANT_FOR.get() in ("", whose):
                    listener(event)
            elif isinstance(event, UpdatedAt):
                for uri, place in watched:
                    if place == event.place:
                        listener(ResourceUpdated(uri))

        return super().subscribe(placed)
