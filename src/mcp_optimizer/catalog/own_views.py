"""The catalog as a caller has it whose entries act as each caller: with the tools and states of its own servers.

A view has the positions of the shared index, so five hundred callers need no index of their own. What a server lists
for others is not in it, nor do words of that count in its searches. Called for every request of a verified caller;
makes a view only when something changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mcp_optimizer.catalog.admissions import Unapproved
from mcp_optimizer.catalog.own_listings import OwnListing, OwnListings
from mcp_optimizer.catalog.snapshot import Snapshot
from mcp_optimizer.catalog.tools import CatalogTool, ToolRecord
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.principal import Principal
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.search.engine import SearchIndex
from mcp_optimizer.upstream.state import UpstreamState

_MOST = 2_000
"""Views that are kept; callers that were silent longest get theirs made again."""

UNKNOWN_CALLER = "it acts as each caller, and it is not known who calls: send a key or a token"

Name = Callable[[ToolRecord, str], CatalogTool]
"""A tool under a public name, with its cost."""

Logins = Callable[[ServerSpec, Principal], str]
"""Why a caller has to log in to a server first; empty if it has a login, or none is needed."""


class Entries(Protocol):
    """The entries of all servers."""

    @property
    def by_caller(self) -> Sequence[ServerSpec]:
        """Those that act as each caller."""


@dataclass(frozen=True)
class _Own:
    """One entry for one caller."""

    server: str
    state: UpstreamState
    listing: OwnListing | None
    """None: none of its tools are there for the caller."""
    shows_all: bool = False
    """The caller finds what others are listed, until it has a login."""


class OwnViews:
    """Makes and keeps the views of callers."""

    def __init__(
        self,
        listings: OwnListings,
        entries: Entries,
        lacks_login: Logins,
        named: Name,
        most: int = _MOST,
    ) -> None:
        self._listings = listings
        self.entries = entries
        self._lacks_login = lacks_login
        self._named = named
        self._most = most
        self._views: OrderedDict[str, tuple[Snapshot, int, Snapshot]] = OrderedDict()
        self._equal: tuple[Snapshot | None, dict[tuple[object, ...], _Tools]] = (None, {})
        # Searches ask for views in threads.
        self._making = threading.Lock()

    def of(self, snapshot: Snapshot, principal: Principal) -> Snapshot:
        """The snapshot as this caller has it; unchanged where no entry acts as each caller."""
        if snapshot.whose or not (specs := self.entries.by_caller):
            return snapshot
        with self._making:
            version = self._listings.version(principal.id)
            known = self._views.get(principal.id)
            if known is None or known[0] is not snapshot or known[1] != version:
                known = self._views[principal.id] = (snapshot, version, self._made(snapshot, principal, specs))
            self._views.move_to_end(principal.id)
            if len(self._views) > self._most:
                self._views.popitem(last=False)
            return known[2]

    def _made(self, snapshot: Snapshot, principal: Principal, specs: Sequence[ServerSpec]) -> Snapshot:
        own = [self._own(snapshot, principal, spec) for spec in specs if spec.name in snapshot.states]
        found = self._tools(snapshot, own)
        states = {one.server: self._shown(snapshot, one) for one in own}
        is_expected = {name for name, state in states.items() if self._is_expected(state, principal)}
        return replace(
            snapshot,
            whose=principal.id,
            tools=found.tools,
            index=found.index,
            mask=found.mask,
            baseline_tokens=found.tokens,
            states={**snapshot.states, **states},
            unapproved=_with_own(snapshot.unapproved, own),
            expected=(snapshot.expected - states.keys()) | is_expected,
            own=frozenset(states),
            offered=frozenset(one.server for one in own if one.shows_all),
        )

    def _own(self, snapshot: Snapshot, principal: Principal, spec: ServerSpec) -> _Own:
        shown = snapshot.states[spec.name]
        down = replace(shown, status=ServerStatus.FAILED, failure=FailureKind.ENTRY, reason=UNKNOWN_CALLER)
        if not principal.is_verified:
            return _Own(spec.name, down, None)
        if missing := spec.missing_of(principal):
            return _Own(spec.name, replace(down, reason=missing), None)
        state = self._listings.state(spec.name, principal.id)
        listing = self._listings.listing(spec.name, principal.id)
        if state is not None and state.status is not ServerStatus.LOGIN_NEEDED:
            is_there = state.is_available or state.is_coming
            return _Own(spec.name, state, listing if is_there else None)
        why = state.reason if state is not None else self._lacks_login(spec, principal)
        if not why:
            return _Own(spec.name, replace(shown, status=ServerStatus.STARTING, reason=""), listing)
        needed = replace(down, status=ServerStatus.LOGIN_NEEDED, failure=FailureKind.LOGIN, reason=why)
        return _Own(spec.name, needed, None, shows_all=spec.auth.lists_before_login)

    def _shown(self, snapshot: Snapshot, own: _Own) -> UpstreamState:
        """The state for the caller. Until the index has all its tools, its server counts as starting."""
        if own.listing is None or own.state.status is not ServerStatus.RUNNING:
            is_new = own.state.status is ServerStatus.RUNNING and own.state.listing.size
            return replace(own.state, status=ServerStatus.STARTING) if is_new else own.state
        names = snapshot.names
        is_whole = all(names.position(own.server, name) is not None for name in own.listing.records)
        return own.state if is_whole else replace(own.state, status=ServerStatus.STARTING)

    def _is_expected(self, state: UpstreamState, principal: Principal) -> bool:
        """Whether the server's tools are known from before, while it rests or starts again."""
        listing = self._listings.listing(state.name, principal.id)
        own = self._listings.state(state.name, principal.id)
        return listing is not None and own is not None and own.is_coming

    def _tools(self, snapshot: Snapshot, own: Sequence[_Own]) -> _Tools:
        """The tools at the index's positions; shared by callers whose servers list the same."""
        if self._equal[0] is not snapshot:
            self._equal = (snapshot, {})
        key = tuple((one.server, id(one.listing), one.shows_all) for one in own)
        if key not in self._equal[1]:
            # The listings are kept with the tools, so that no other one gets the id of one of them.
            self._equal[1][key] = _Tools.of(snapshot, own, self._named)
        return self._equal[1][key]


@dataclass(frozen=True)
class _Tools:
    tools: tuple[CatalogTool | None, ...]
    index: SearchIndex
    mask: bytes
    tokens: int
    made_of: tuple[OwnListing | None, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, own: Sequence[_Own], named: Name) -> _Tools:
        tools, names = list(snapshot.tools), snapshot.names
        tokens, hidden = snapshot.baseline_tokens, set[int]()
        for one in own:
            if one.shows_all:
                continue
            records: Mapping[str, ToolRecord] = one.listing.records if one.listing is not None else {}
            for position in names.of_server(one.server):
                if (record := records.get(names.records[position].name)) is None:
                    hidden.add(position)
                if (shared := tools[position]) is None:
                    continue
                mine = _mine(shared, record, named)
                tools[position] = mine
                tokens += (mine.listed_tokens if mine is not None else 0) - shared.listed_tokens
        index = snapshot.index
        if hidden:
            # Whatever is listed only for others must not show, not even in scores.
            index = index.in_place([position for position in range(len(tools)) if position not in hidden])
        made_of = tuple(one.listing for one in own)
        return cls(tuple(tools), index, bytes(tool is not None for tool in tools), tokens, made_of)


def _mine(shared: CatalogTool, record: ToolRecord | None, named: Name) -> CatalogTool | None:
    """A tool as it is listed for the caller, under the name that it has for all."""
    if record is None:
        return None
    return shared if record.definition_hash == shared.record.definition_hash else named(record, shared.name)


def _with_own(unapproved: Unapproved, own: Sequence[_Own]) -> Unapproved:
    held = {(one.server, name): tool for one in own if one.listing for name, tool in one.listing.held.items()}
    announced = {(one.server, name): tool for one in own if one.listing for name, tool in one.listing.announced.items()}
    if not held and not announced:
        return unapproved
    return replace(unapproved, held={**unapproved.held, **held}, announced={**unapproved.announced, **announced})
