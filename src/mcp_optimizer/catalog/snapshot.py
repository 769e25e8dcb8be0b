"""Everything known about servers and tools at one moment, for all callers and as one caller has it. Made by the live
catalog, read by the gateway.

Immutable; large parts are computed on demand.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Protocol

from mcp_optimizer.catalog.admissions import Held, Unapproved
from mcp_optimizer.catalog.own_listings import OwnListing, OwnListings
from mcp_optimizer.catalog.tools import CatalogTool, NameTable, ToolRecord
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.naming import ServerNames
from mcp_optimizer.domain.pins import HeldTool
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.engine import SearchIndex
from mcp_optimizer.search.index_parts import Entry
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.search.ranker import Mask
from mcp_optimizer.search.words import name_key
from mcp_optimizer.upstream.state import UpstreamState


@dataclass(frozen=True)
class Snapshot:
    """One moment of the catalog. `tools` are ordered as in `index`; None means that a tool's server is down.

    `table` has the positions by name, `mask` those that run; without both, all tools must run.
    """

    tools: Sequence[CatalogTool | None] = ()
    index: SearchIndex = field(default_factory=lambda: SearchIndex((), Vocabulary()))
    states: Mapping[str, UpstreamState] = field(default_factory=dict)
    baseline_tokens: int = 0
    encoder_is_loading: bool = False
    table: NameTable | None = None
    mask: bytes | None = None
    unapproved: Unapproved = field(default_factory=Unapproved)
    """Tools and instructions of running servers that are not approved in their present form."""
    expected: frozenset[str] = frozenset()
    """Servers whose tools come from an earlier listing: the server is starting, or its new listing is being ingested. A
    call waits for it.
    """
    whose: str = ""
    """The caller, by id, with whose own servers this is; empty where it makes no difference."""
    own: frozenset[str] = frozenset()
    """Servers that act as each caller."""
    offered: frozenset[str] = frozenset()
    """Servers whose tools the caller finds before it has logged in; a call asks for the login."""

    def is_own(self, server: str) -> bool:
        """Whether a server acts as each caller, so that nothing is learned of it that others are told."""
        return server in self.own

    @lazy
    def _is_running(self) -> bytes:
        return bytes(tool is not None for tool in self.tools) if self.mask is None else self.mask

    @lazy
    def _is_findable(self) -> bytes:
        """The same without the tools that only pages may call."""
        return self._running_but(self.names.for_apps)

    @lazy
    def _is_for_models(self) -> bytes:
        """The tools that models may see, without skills."""
        return self._running_but((*self.names.for_apps, *self.names.skills))

    def _running_but(self, others: Collection[int]) -> bytes:
        if not others:
            return self._is_running
        mask = bytearray(self._is_running)
        for position in others:
            mask[position] = False
        return bytes(mask)

    @property
    def allowed(self) -> Mask:
        """The mask of positions that may be found: tools that models may see, and skills."""
        return np.frombuffer(self._is_findable, dtype=np.bool_)

    @property
    def allowed_tools(self) -> Mask:
        """The same without skills."""
        return np.frombuffer(self._is_for_models, dtype=np.bool_)

    @lazy
    def sent_tokens(self) -> int:
        """Tokens of the name, description and input schema of all running tools, and of the names and descriptions of
        skills: what clients without a gateway send. The baseline also counts what no client sends, such as output
        schemas and annotations.
        """
        return sum(tool.record.sent_tokens for tool in (*self.running, *self.skills))

    @property
    def held(self) -> Held:
        """Tools that wait for approval, by server and own name: they cannot be found, listed or called."""
        return self.unapproved.held

    @lazy
    def _held_by_key(self) -> Mapping[str, tuple[HeldTool, ...]]:
        found: dict[str, tuple[HeldTool, ...]] = {}
        for tool in self.held.values():
            key = name_key(tool.name)
            found[key] = (*found.get(key, ()), tool)
        return found

    def held_as(self, name: str) -> tuple[HeldTool, ...]:
        """Held tools with this own name, in any spelling."""
        if not self.held:
            return ()
        return tuple(tool for tool in self._held_by_key.get(name_key(name), ()) if name_key(name) or tool.name == name)

    @lazy
    def names(self) -> NameTable:
        """Positions of tools, by server and by name."""
        if self.table is not None:
            return self.table
        running = self.at(range(len(self.tools)))
        others = ((tool.name, at) for at, tool in enumerate(running) if tool.name != tool.record.name)
        return NameTable.of([tool.record for tool in running], ServerNames(self.states), others)

    @lazy
    def by_name(self) -> Mapping[str, CatalogTool]:
        """The running tools, without skills, by public name."""
        return _ByName(self)

    def listed_as(self, name: str) -> CatalogTool | None:
        """The running tool or skill with this public name; for tools the same as `by_name`, in a third of the time."""
        names = self.names
        position = names.first.get(name)
        if position is None:
            return None
        tool = self.tools[position]
        if tool is not None and tool.name == name:
            # The usual case: the first tool with this name has it now.
            return tool
        others = self.at(names.further.get(name, ()))
        return next((other for other in others if other.name == name), None)

    @lazy
    def running(self) -> tuple[CatalogTool, ...]:
        """The tools of running and expected servers, by server and name, that models may see."""
        return tuple(self.at(compress(range(len(self.tools)), self._is_for_models)))

    @lazy
    def callable(self) -> tuple[CatalogTool, ...]:
        """The same, and the tools that only pages may call."""
        return tuple(self.at(compress(range(len(self.tools)), self._running_but(self.names.skills))))

    @lazy
    def skills(self) -> tuple[CatalogTool, ...]:
        """The skills of running and expected servers, by server and name."""
        return tuple(self.at(self.names.skills))

    @lazy
    def of_apps(self) -> tuple[CatalogTool, ...]:
        """The tools of running servers that declare something for hosts that show pages."""
        return tuple(self.at(self.names.with_page))

    @lazy
    def page_owners(self) -> Mapping[str, tuple[str, ...]]:
        """The servers whose tools name a page, by its URI there. Many servers do not list their pages."""
        found: dict[str, dict[str, None]] = {}
        for tool in self.of_apps:
            if tool.record.app is not None and tool.record.app.page:
                found.setdefault(tool.record.app.page, {})[tool.server] = None
        return {page: tuple(servers) for page, servers in found.items()}

    def of_server(self, server: str) -> tuple[CatalogTool, ...]:
        """The tools of one server, if it runs, that models may see."""
        return tuple(tool for tool in self.at(self.names.of_server(server)) if tool.record.is_for_models)

    def at(self, positions: Iterable[int]) -> list[CatalogTool]:
        return [tool for position in positions if (tool := self.tools[position]) is not None]

    def confined(self, servers: Collection[str], named: Collection[str] | None = None) -> Snapshot:
        """The snapshot as if only these servers existed: their tools at new positions, and their words. `named` are the
        servers whose names count as server names; None means all.
        """
        at = [position for server in sorted(servers) for position in self.names.of_server(server)]
        if self.whose:
            # The others are those of other callers.
            at = [position for position in at if self.tools[position] is not None]
        tools = [self.tools[position] for position in at]
        others = ((tool.name, place) for place, tool in enumerate(tools) if tool and tool.name != tool.record.name)
        states = {name: state for name, state in self.states.items() if name in servers}
        table = self.names.some(at, named, others)
        return replace(
            self,
            tools=tuple(tools),
            index=self.index.confined(at, lambda: [_entry(record) for record in table.records]),
            states=states,
            baseline_tokens=sum(tool.listed_tokens for tool in tools if tool is not None),
            table=table,
            mask=None,
            unapproved=self.unapproved.of(states),
            expected=self.expected.intersection(states),
        )

    @property
    def has_tools(self) -> bool:
        """Whether any tool can be found."""
        return any(self._is_findable)

    @lazy
    def starting(self) -> frozenset[str]:
        """Servers of which tools are known from before, that are starting and have not been started by a use."""
        return frozenset(name for name in self.expected if not self.states[name].is_resting)

    @property
    def is_starting(self) -> bool:
        """Whether a server without known tools is still starting, or its tools are still being ingested."""
        return any(not state.is_down for state in self._missing)

    def missing(self) -> list[UpstreamState]:
        """Servers whose tools cannot be found now, although they are configured and not disabled."""
        return list(self._missing)

    @lazy
    def _missing(self) -> tuple[UpstreamState, ...]:
        # A server whose tools are all held has none in the table.
        held = {server for server, _ in self.held}
        known = {*self.names.ranges, *held} if held else self.names.ranges
        # One that is starting is missing until its expected tools are in the table: the index is built a moment later.
        # Local names, because while thousands of servers start, this loop runs several times a second.
        running, starting = ServerStatus.RUNNING, ServerStatus.STARTING
        return tuple(
            state
            for name, state in self.states.items()
            if (
                name not in known and state.listing.size
                if state.status is running
                else (state.status is starting and (name not in self.expected or name not in known))
                or state.status.has_failed
            )
        )


def _entry(record: ToolRecord) -> Entry:
    return Entry(record.server, record.name, record.counts, None, record.successors)


class _ByName(Mapping[str, CatalogTool]):
    """Reads the table of names instead of building a dictionary for every snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> CatalogTool:
        tool = self._snapshot.listed_as(name)
        if tool is None or tool.record.skill is not None:
            raise KeyError(name)
        return tool

    def __iter__(self) -> Iterator[str]:
        return (tool.name for tool in self._snapshot.running)

    def __len__(self) -> int:
        return len(self._snapshot.running)


# The catalog as a caller has it whose entries act as each caller: with the tools and states of its own servers. A
# view has the positions of the shared index, so five hundred callers need no index of their own. What a server lists
# for others is not in it, nor do words of that count in its searches. Called for every request of a verified caller;
# makes a view only when something changed.

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
