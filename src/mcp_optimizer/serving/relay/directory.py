"""The prompts, resources and resource templates of all servers, under unique names: the current lists of running
servers, and the last known lists of starting ones. All callers share one, except where entries act as each caller.

Also maps a name or URI back to its server. A server that fails or takes too long is left out of a list; only if all
fail is that an error. Names are chosen from all servers' entries. Apart from that, a server that does not exist for the
caller has no effect on it: no entry, error or delay. A name with a server in it, or a URI with a server's scheme and
authority, belongs only to that server, even while it is down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.extensions import PAGE_SCHEME
from mcp_optimizer.domain.naming import ServerNames, ServerSchemes
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import InvalidRequest, ServerUnavailable, UpstreamError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.relay.listings import (
    KINDS,
    NOTHING,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    Answer,
    Call,
    Configured,
    Listed,
    ListingKind,
    Listings,
    ListMemory,
    MergedList,
    Remembered,
    least_ttl_ms,
    put_together,
)
from mcp_optimizer.serving.relay.places import Holding, answering, claiming, place_of
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

Allowed = Callable[[str], bool]
"""Whether a server exists for the caller."""


def everything(_server: str) -> bool:
    """For callers that may use every server."""
    return True


_MANY = 500
"""Number of entries from which a list is assembled in a thread."""


class Directory:
    """The lists of the running and the starting servers."""

    def __init__(
        self,
        states: Callable[[], Mapping[str, UpstreamState]],
        call: Call,
        limits: Limits = DEFAULT_LIMITS,
        on_late: Callable[[str], None] = lambda _capability: None,
        memory: ListMemory | None = None,
        owners: Callable[[str], Collection[str]] = lambda _uri: (),
    ) -> None:
        """`on_late` is called with the lists that changed when a server responds after lists were sent without it.

        `memory` stores what servers listed at earlier starts; `owners` knows the servers whose tools name a page, and
        those with a skill that has a URI.
        """
        self._owners = owners
        self._states = states
        self._remembered = Remembered(states, memory, limits.listed_items)
        self._listings = Listings(call, self._tells_changes, limits, on_late, self._remembered.note)
        self._up: set[str] = set()
        self._owed: set[tuple[str, str]] = set()
        """Lists, by server and method, that were requested before the server was up."""
        self._tasks = BackgroundTasks(logger, "Cannot list what a server has that came up")
        self._known = Configured(ServerNames(), ServerSchemes(()))
        self._made: dict[str, tuple[dict[str, Listed], MergedList]] = {}
        self._holdings: dict[str, Holding] = {}
        self._held_from: dict[str, tuple[Listed | None, Listed | None]] = {}

    def forget(self, server: str, capability: str | None = None) -> None:
        """Drop a server's cached lists, of one capability or all, because they changed."""
        # It still owns its URIs: no other server answers for them while it is down.
        self._listings.forget(server, capability)
        self._held_from.pop(server, None)
        self._made.clear()

    def remove(self, server: str) -> None:
        """Remove a server for good: nothing belongs to it any more."""
        self.forget(server)
        self._remembered.forget(server)
        self._up.discard(server)
        self._owed -= {(server, kind.method) for kind in KINDS}
        self._holdings.pop(server, None)

    def follow(self, state: UpstreamState) -> None:
        """Follow a server's state. When it starts, its last lists are recalled; when it is up, the lists requested
        meanwhile are fetched, so that the next start knows them even if no client asks twice.
        """
        name = state.name
        if state.is_resting:
            self._remembered.recall(name)
        elif state.status is not ServerStatus.RUNNING:
            self._up.discard(name)
            if state.status is ServerStatus.STARTING:
                self._remembered.recall(name)
        elif name not in self._up:
            self._up.add(name)
            for kind in KINDS:
                self._came_up(state, kind)

    def _came_up(self, state: UpstreamState, kind: ListingKind) -> None:
        owed = (state.name, kind.method)
        if state.capabilities.get(kind.capability) is None:
            self._remembered.note(state.name, kind, NOTHING)
        else:
            if (before := self._remembered.of(state.name, kind)) is not None and before.entries:
                self._listings.expect(state.name, kind, before)
            if owed in self._owed:
                self._tasks.spawn(self._listings.of([state.name], kind))
        self._owed.discard(owed)

    def remembers(self, server: str, capability: str) -> bool:
        """Whether known entries of a server are listed while it starts."""
        lists = [self._remembered.of(server, kind) for kind in KINDS if kind.capability == capability]
        return any(one is not None and one.entries for one in lists)

    def store(self) -> None:
        """Store the servers' lists now, which was not possible before."""
        self._remembered.store()

    async def recalled(self) -> None:
        """Wait until the stored lists of starting servers are loaded."""
        await self._remembered.recalled()

    def unknown(self, kind: ListingKind, allowed: Allowed = everything) -> list[str]:
        """The starting servers whose entries of this kind are unknown."""
        return [
            name
            for name, state in self._states().items()
            if state.status is ServerStatus.STARTING and self._remembered.of(name, kind) is None and allowed(name)
        ]

    def give_up(self, kind: ListingKind, allowed: Allowed = everything) -> None:
        """Stop waiting for servers that are still unknown. Each is waited for only once: no later start waits for it,
        and its lists are requested when it is up.
        """
        for server in self.unknown(kind, allowed) if self._remembered.is_recalled else []:
            for one in KINDS:
                self._owed.add((server, one.method))
                if self._remembered.of(server, one) is None:
                    self._remembered.note(server, one, NOTHING)

    def providers(self, capability: str) -> list[str]:
        """The servers with this capability that run, or start when they are asked, in a fixed order."""
        return sorted(
            name
            for name, state in self._states().items()
            if state.is_available and state.capabilities.get(capability) is not None
        )

    def _tells_changes(self, server: str, kind: ListingKind) -> bool:
        state = self._states().get(server)
        declared = state.capabilities.get(kind.capability) if state is not None else None
        return isinstance(declared, Mapping) and bool(declared.get("listChanged"))

    def _configured(self) -> Configured:
        states = self._states()
        if states.keys() != self._known.names.all:
            self._known = Configured(ServerNames(states), ServerSchemes(states))
        return self._known

    async def listed(self, kind: ListingKind, allowed: Allowed = everything, most: float | None = None) -> MergedList:
        """The list of everything that exists for the caller, complete and with the same names for every caller. `most`:
        maximum seconds to wait for servers, if less than usual.
        """
        states = self._states()
        self._owed |= {
            (name, kind.method) for name, state in states.items() if state.is_coming and not state.is_resting
        }
        found, answers = await self._answered(kind, allowed, most)
        permitted = {server: answer for server, answer in answers.items() if allowed(server)}
        if len(permitted) < len(answers):
            entries = tuple(entry for entry in found.entries if entry.server in permitted)
            found = MergedList(entries, least_ttl_ms(_usable(permitted)), "private")
        # A missing server may respond in a moment, and one that is starting will.
        is_early = any(state.is_coming and not state.is_resting for name, state in states.items() if allowed(name))
        return replace(found, ttl_ms=0) if is_early or None in permitted.values() else found

    async def _answers(self, kind: ListingKind, allowed: Allowed, most: float | None = None) -> dict[str, Answer]:
        """Each running server's list, and for each starting server its last one, if known."""
        coming = [name for name, state in self._states().items() if state.is_coming]
        before = {name: listed for name in coming if (listed := self._remembered.of(name, kind)) is not None}
        # A server that rests is asked only for what it has never listed.
        asked = [name for name in self.providers(kind.capability) if name not in before]
        answers = await self._listings.of(asked, kind, allowed, most)
        return dict(sorted({**before, **answers}.items())) if before else answers

    async def _answered(
        self, kind: ListingKind, allowed: Allowed, most: float | None = None
    ) -> tuple[MergedList, Mapping[str, Answer]]:
        """The merged list of all servers, cached while their lists stay the same, and each server's answer.

        Only servers that exist for the caller can delay it or make it fail.
        """
        answers = await self._answers(kind, allowed, most)
        permitted = [answer for server, answer in answers.items() if allowed(server)]
        errors = {server: answer for server, answer in answers.items() if isinstance(answer, UpstreamError)}
        if permitted and all(isinstance(answer, UpstreamError) for answer in permitted):
            raise next(error for server, error in errors.items() if allowed(server))
        for server, error in errors.items():
            logger.warning("Cannot list the %s of %s: %s", kind.result_key, server, error)
        return await self._made_of(_usable(answers), kind), answers

    async def _made_of(self, listed: dict[str, Listed], kind: ListingKind) -> MergedList:
        before = self._made.get(kind.method)
        if before is not None and _are_same(before[0], listed):
            return before[1]
        if sum(len(one.entries) for one in listed.values()) > _MANY:
            found = await asyncio.to_thread(put_together, listed, kind, self._configured())
        else:
            found = put_together(listed, kind, self._configured())
        self._made[kind.method] = (listed, found)
        return found

    async def prompt(self, name: str, allowed: Allowed = everything) -> tuple[str, str] | None:
        """A prompt's server and own name; an unknown prompt may still exist on the only server."""
        names = self._configured().names
        readings = names.meant(name)
        meant = {server: rests for server, rests in readings.items() if allowed(server)}
        if readings and not meant:
            return None
        if len(meant) > 1:
            raise InvalidRequest(f"The prompt {name!r} is ambiguous: {' or '.join(meant)}. See prompts/list.")
        for server, rests in meant.items():
            listed = await self._of_server(server, PROMPTS)
            own = next((own for own in names.own_names(name, server) if own in listed), rests[0])
            return server, own
        if (entry := (await self._answered(PROMPTS, allowed))[0].by_public.get(name)) is not None:
            return (entry.server, entry.own) if allowed(entry.server) else None
        providers = [server for server in self.providers(PROMPTS.capability) if allowed(server)]
        return (providers[0], name) if len(providers) == 1 else None

    async def resource(self, uri: str, allowed: Allowed = everything) -> list[tuple[str, str]]:
        """Where a URI may be read, most likely first: server and own URI. Servers have more resources than they
        list.
        """
        if (read := self._configured().schemes.reading(uri)) is not None:
            server, own = read
            if not allowed(server):
                return []
            # A scheme like git+ssh may also be the server's own.
            is_own = uri in await self._of_server(server, RESOURCES)
            return [(server, uri), (server, own)] if is_own else [(server, own), (server, uri)]
        providers = self.providers(RESOURCES.capability)
        if len(providers) == 1:
            self._refuse_others(uri, providers, allowed)
            return [(providers[0], uri)] if allowed(providers[0]) else []
        resources = await self._answers(RESOURCES, allowed)
        found = await self._made_of(_usable(resources), RESOURCES)
        owners = self._owners(uri)
        if owners or uri.startswith(PAGE_SCHEME):
            return self._owned(uri, found, owners, allowed)
        public = found.by_public.get(uri)
        if public is not None and allowed(public.server):
            return [(public.server, public.own)]
        shared = [entry for entry in found.entries if entry.own == uri and allowed(entry.server)]
        if len(shared) == 1:
            # The other servers that list it do not exist for the caller.
            return [(shared[0].server, uri)]
        if shared:
            choice = ", ".join(entry.public for entry in shared)
            raise InvalidRequest(f"Several servers have the resource {uri}. Read one of: {choice}.")
        templates = await self._answers(TEMPLATES, allowed)
        self._learn(_usable(resources), _usable(templates))
        self._refuse_others(uri, providers, allowed)
        holdings = {server: self._holdings.get(server, Holding()) for server in providers if allowed(server)}
        # As if the hidden servers did not exist.
        return [(server, uri) for server in answering(uri, holdings)]

    def _owned(self, uri: str, found: MergedList, owners: Collection[str], allowed: Allowed) -> list[tuple[str, str]]:
        """Where a page, or a file of a skill, may be read by its server's own URI: only at a server that lists it, or
        whose tool or skill names it, so that no other server can answer with one of its own.
        """
        listing = [entry.server for entry in found.entries if entry.own == uri]
        having = sorted({server for server in (*listing, *owners) if allowed(server)})
        if len(having) > 1:
            public = self._configured().schemes.public
            choice = ", ".join(public(server, uri) for server in having)
            what = "page" if uri.startswith(PAGE_SCHEME) else "resource"
            raise InvalidRequest(f"Several servers have the {what} {uri}. Read one of: {choice}.")
        return [(having[0], uri)] if having else []

    async def template(self, uri: str, allowed: Allowed = everything) -> tuple[str, str] | None:
        """The server and own form of a template or resource, for completing its arguments."""
        if (entry := (await self._answered(TEMPLATES, allowed))[0].by_public.get(uri)) is not None:
            return (entry.server, entry.own) if allowed(entry.server) else None
        places = await self.resource(uri, allowed)
        return places[0] if places else None

    async def awaited_prompt(self, name: str, allowed: Allowed = everything) -> str | None:
        """The starting server that has a prompt; None if there is none."""
        coming = self._coming(allowed)
        if not coming:
            return None
        if meant := self._configured().names.meant(name):
            return next((server for server in meant if server in coming), None)
        entry = (await self._answered(PROMPTS, allowed))[0].by_public.get(name)
        return entry.server if entry is not None and entry.server in coming else None

    async def awaited_resource(self, uri: str, allowed: Allowed = everything) -> str | None:
        """The same for the URI of a resource or template."""
        coming = self._coming(allowed)
        if not coming:
            return None
        if (read := self._configured().schemes.reading(uri)) is not None:
            return read[0] if read[0] in coming else None
        answers = []
        for kind in (RESOURCES, TEMPLATES):
            found, of_kind = await self._answered(kind, allowed)
            if (entry := found.by_public.get(uri)) is not None:
                return entry.server if entry.server in coming else None
            answers.append(_usable(of_kind))
        self._learn(*answers)
        known = [server for server in {**answers[0], **answers[1]} if allowed(server)]
        claimed = claiming(uri, {server: self._holdings.get(server, Holding()) for server in known})
        return claimed[0] if claimed and coming.issuperset(claimed) else None

    def _coming(self, allowed: Allowed) -> set[str]:
        return {name for name, state in self._states().items() if state.is_coming and allowed(name)}

    def hidden_prompt(self, name: str, allowed: Allowed) -> str | None:
        """The server that an unresolved prompt name refers to, if that server does not exist for the caller."""
        meant = [*self._configured().names.meant(name), *self._listing(name, PROMPTS)]
        return next((server for server in meant or self._only(PROMPTS) if not allowed(server)), None)

    def hidden_resource(self, uri: str, allowed: Allowed) -> str | None:
        """The same for the URI of a resource or template."""
        read, place, states = self._configured().schemes.reading(uri), place_of(uri), self._states()
        meant = [read[0]] if read is not None else [*self._listing(uri, RESOURCES), *self._listing(uri, TEMPLATES)]
        if not meant and place is not None:
            held = [(server, holding) for server, holding in self._holdings.items() if server in states]
            meant = [server for server, one in held if one.owns(place) or one.has_fitting(uri, place.scheme)]
        return next((server for server in meant or self._only(RESOURCES) if not allowed(server)), None)

    def _listing(self, named: str, kind: ListingKind) -> list[str]:
        """The servers known to list this name; if it is a public name, only the server it belongs to."""
        if kind.method not in self._made:
            return []
        found = self._made[kind.method][1]
        public = found.by_public.get(named)
        return [public.server] if public else [entry.server for entry in found.entries if entry.own == named]

    def _only(self, kind: ListingKind) -> list[str]:
        """The only server with this capability, which is asked for everything that no list contains."""
        providers = self.providers(kind.capability)
        return providers if len(providers) == 1 else []

    async def _of_server(self, server: str, kind: ListingKind) -> Mapping[str, Any]:
        """What one server lists, without asking other servers; empty if it does not respond."""
        state = self._states()[server]
        if not state.is_available:
            raise _unavailable(state)
        if state.capabilities.get(kind.capability) is None:
            return {}
        if state.is_resting and (before := self._remembered.of(server, kind)) is not None:
            return before.entries
        answer = (await self._listings.of([server], kind))[server]
        return answer.entries if isinstance(answer, Listed) else {}

    def _learn(self, resources: Mapping[str, Listed], templates: Mapping[str, Listed]) -> None:
        """Record which schemes and authorities belong to which server, from their current lists."""
        for server in resources.keys() | templates.keys():
            now = (resources.get(server), templates.get(server))
            before = self._held_from.get(server, (None, None))
            if now[0] is not before[0] or now[1] is not before[1]:
                self._held_from[server] = now
                self._holdings[server] = Holding.of(*(one.entries if one else () for one in now))

    def _refuse_others(self, uri: str, providers: list[str], allowed: Allowed) -> None:
        """Refuse a URI of a server that is down, or one that may belong to several servers; never guess."""
        place = place_of(uri)
        if place is None:
            return
        states = self._states()
        held = [name for name in self._holdings if name in states and allowed(name)]
        owners = sorted(name for name in held if self._holdings[name].owns(place))
        if owners and not set(owners) & set(providers):
            raise _unavailable(states[owners[0]])
        if len(owners) > 1 and place.authority:
            schemes = self._configured().schemes
            choice = ", ".join(schemes.public(server, uri) for server in owners)
            raise InvalidRequest(f"Several servers have resources at {place.authority!r}. Read one of: {choice}.")


def _usable(answers: Mapping[str, Answer]) -> dict[str, Listed]:
    return {server: answer for server, answer in answers.items() if isinstance(answer, Listed)}


def _are_same(one: Mapping[str, Listed], other: Mapping[str, Listed]) -> bool:
    return one.keys() == other.keys() and all(one[server] is other[server] for server in one)


def _unavailable(state: UpstreamState) -> ServerUnavailable:
    return ServerUnavailable(state.name, f"The server {state.name!r} is not running: {state.reason or state.status}.")


# The directory that all callers share, and, where entries act as each caller, one for each caller. What a caller's
# own server lists is in that caller's directory alone. Each directory follows the states of its servers, and says
# which lists have changed.

_MOST = 2_000
"""Callers whose directories are kept; the one that was silent longest has its lists fetched again."""


class FollowedDirectory:
    """A directory, and the servers in it that run or are coming. `told`: the lists whose changes clients hear of."""

    def __init__(self, directory: Directory, told: Set[str]) -> None:
        self.directory = directory
        self.coming: set[str] = set()
        self._told = told
        self._running: dict[str, frozenset[str]] = {}

    def on_state(self, state: UpstreamState) -> set[str]:
        """A server came or went, and its lists with it; returns the lists that changed."""
        is_running = state.is_available
        has = frozenset(state.capabilities) & self._told if is_running else frozenset[str]()
        if self._running.get(state.name) != has or not is_running:
            self.directory.forget(state.name)
        self.directory.follow(state)
        changed = set(self._running.get(state.name, frozenset()) ^ has)
        self._running[state.name] = has
        if state.is_coming and not state.is_resting:
            self.coming.add(state.name)
        elif state.name in self.coming:
            self.coming.discard(state.name)
            # Entries from an earlier start may have been sent to clients, and are gone now.
            gone = {kind for kind in ("prompts", "resources") if self.directory.remembers(state.name, kind)}
            changed |= ({"tools"} | gone) & self._told - has
        return changed

    def on_gone(self, server: str) -> set[str]:
        """A server was removed, or its name means another one; returns the lists that changed."""
        gone = {kind for kind in ("prompts", "resources") if self.directory.remembers(server, kind)}
        self.directory.remove(server)
        self.coming.discard(server)
        return gone | self._running.pop(server, frozenset())

    def on_notice(self, server: str, kind: str) -> set[str]:
        """A server says that its lists of a kind changed."""
        if kind in ("prompts", "resources"):
            self.directory.forget(server, kind)
        return {kind} & self._told


class Directories:
    """All directories of a gateway."""

    def __init__(
        self, shared: FollowedDirectory, make: Callable[[Principal], FollowedDirectory | None], most: int = _MOST
    ) -> None:
        """`make` makes a caller's directory; None: no entry acts as each caller."""
        self.shared = shared
        self._make = make
        self._most = most
        self._own: OrderedDict[str, FollowedDirectory] = OrderedDict()

    def of(self, principal: Principal) -> FollowedDirectory:
        """The directory with what exists for a caller."""
        known = self._own.get(principal.id)
        if known is None:
            if not principal.is_verified or (known := self._make(principal)) is None:
                return self.shared
            self._own[principal.id] = known
            if len(self._own) > self._most:
                self._own.popitem(last=False)
        self._own.move_to_end(principal.id)
        return known

    def existing(self, principal: Principal) -> FollowedDirectory | None:
        """A caller's own directory, if it has been used."""
        return self._own.get(principal.id)

    def __iter__(self) -> Iterator[FollowedDirectory]:
        yield self.shared
        yield from self._own.values()
