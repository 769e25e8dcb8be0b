"""Everything known about servers and tools at one moment. Made by the live catalog, read by the gateway.

Immutable; large parts are computed on demand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from mcp_optimizer.catalog.admissions import Held, Unapproved
from mcp_optimizer.catalog.tools import CatalogTool, NameTable, ToolRecord
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
