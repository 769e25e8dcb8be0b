"""What entries that act as each caller list for their callers. Callers with equal listings share one, and the index has
every tool once, whoever lists it.

The index and everything that all callers share see of a tool only what its definitions for different callers have in
common. Fed by the pool with the states of callers' own servers; read by `snapshot`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from mcp_optimizer.catalog.admissions import AdmitsAll, ToolAdmission
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tools import ServerText, ToolRecord
from mcp_optimizer.compression.sentences import sentences
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.domain.pins import Admitted, HeldTool, own_pins_name
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_PAUSE_EACH = 0.005
_LONGEST_PAUSE = 5.0
"""Seconds between two times that an entry's tools are shown: for each of them, and the maximum."""


@dataclass(frozen=True)
class OwnListing:
    """The tools that a server lists for some callers, as far as they are admitted."""

    records: Mapping[str, ToolRecord] = field(default_factory=dict)
    """By the tools' own names."""
    held: Mapping[str, HeldTool] = field(default_factory=dict)
    announced: Mapping[str, HeldTool] = field(default_factory=dict)
    withheld: Sequence[Definition] = ()
    kept: Sequence[_Kept] = ()
    """What other callers' listings share with this one, for as long as it exists."""


class AdmitsShown:
    """Admits what an entry shows for all its callers together, which was admitted for each of them."""

    def __init__(self, admission: ToolAdmission) -> None:
        self._admission = admission

    async def admit(self, state: UpstreamState) -> Admitted:
        return await self._of(state).admit(state)

    async def recalled(self, state: UpstreamState) -> Admitted:
        return await self._of(state).recalled(state)

    def _of(self, state: UpstreamState) -> ToolAdmission:
        return AdmitsAll() if state.spec.is_of_each_caller else self._admission


class _Named:
    """One name of an entry's tools: how many callers get which definition under it, and what all of these share."""

    def __init__(self, first: Definition) -> None:
        self.callers: Counter[str] = Counter()
        self.shared = first
        self._joined = {first.definition_hash}

    def join(self, definition: Definition) -> None:
        self.callers[definition.definition_hash] += 1
        if definition.definition_hash not in self._joined:
            self._joined.add(definition.definition_hash)
            self.shared = in_common(self.shared, definition)

    def leave(self, definition: Definition) -> bool:
        """Whether no caller gets the name any longer."""
        self.callers[definition.definition_hash] -= 1
        return not +self.callers


class OwnListings:
    """The listings of all callers' own servers, and the states of these."""

    def __init__(
        self,
        ingestion: Ingestion,
        admission: ToolAdmission,
        show: Callable[[str, Listing, str], None],
        changed: Callable[[], None],
    ) -> None:
        """`show` is called with what an entry lists for its callers together, whenever that changes; `changed` whenever
        something changes for any caller.
        """
        self._ingestion = ingestion
        self._admission = admission
        self._show = show
        self._states: dict[str, dict[str, UpstreamState]] = {}
        self._listings: dict[str, dict[str, OwnListing]] = {}
        self._equal: WeakValueDictionary[tuple[Any, ...], OwnListing] = WeakValueDictionary()
        self._records: dict[str, WeakValueDictionary[str, _Kept]] = {}
        self._named: dict[str, dict[str, _Named]] = {}
        self._instructions: dict[str, str] = {}
        self._pinned: dict[str, tuple[str, Principal]] = {}
        self._numbers = itertools.count(1)
        self._latest: dict[tuple[str, str], int] = {}
        self._versions: Counter[str] = Counter()
        self._taking_in = BackgroundTasks(logger, "Adding the tools of a caller's own server failed")
        self._changed = changed
        self._to_show: set[str] = set()
        self._next_show: dict[str, float] = {}

    def on_state(self, principal: Principal, state: UpstreamState) -> None:
        """Handle a change of the state of a caller's own server."""
        whose, server = principal.id, state.name
        self._states.setdefault(whose, {})[server] = replace(state, listing=state.listing.summary())
        self._change(whose)
        if state.status is ServerStatus.RUNNING and state.listing.summary_of is None:
            self._latest[whose, server] = number = next(self._numbers)
            self._taking_in.spawn(self._take_in(principal, state, number))

    def state(self, server: str, principal_id: str) -> UpstreamState | None:
        return self._states.get(principal_id, {}).get(server)

    def listing(self, server: str, principal_id: str) -> OwnListing | None:
        return self._listings.get(server, {}).get(principal_id)

    def version(self, principal_id: str) -> int:
        """Changes with everything that is known of a caller's own servers."""
        return self._versions[principal_id]

    def note_change(self, principal_id: str) -> None:
        """Something else that a caller's view depends on has changed."""
        self._change(principal_id)

    async def settled(self) -> None:
        """Wait until everything listed so far is taken in."""
        await self._taking_in.settled()

    def forget(self, server: str) -> None:
        """An entry was removed, or its name means another server."""
        for whose in self._listings.pop(server, {}):
            self._change(whose)
        for whose, states in self._states.items():
            if states.pop(server, None) is not None:
                self._change(whose)
        self._latest = {key: number for key, number in self._latest.items() if key[1] != server}
        self._named.pop(server, None)
        self._records.pop(server, None)
        self._instructions.pop(server, None)

    def forget_own(self, server: str, principal_id: str) -> None:
        """A caller has logged out: what its server listed for it is nobody's."""
        self._latest.pop((principal_id, server), None)
        self._states.get(principal_id, {}).pop(server, None)
        before = self._listings.get(server, {}).pop(principal_id, None)
        if before is not None and self._leave(server, before):
            self._show_all(server)
        self._change(principal_id)

    def reconsider(self, servers: Iterable[str]) -> None:
        """Admit the last listings again, after decisions about what is pinned under these names."""
        for name in servers:
            if name not in self._pinned:
                continue
            server, principal = self._pinned[name]
            state, before = self.state(server, principal.id), self.listing(server, principal.id)
            if state is None or before is None or state.status is not ServerStatus.RUNNING:
                continue
            tools = (*(record.definition for record in before.records.values()), *before.withheld)
            again = replace(state, listing=Listing(tools=tools), instructions="")
            self._latest[principal.id, server] = number = next(self._numbers)
            self._taking_in.spawn(self._take_in(principal, again, number))

    async def _take_in(self, principal: Principal, state: UpstreamState, number: int) -> None:
        server, whose = state.name, principal.id
        name = own_pins_name(server, principal.name)
        self._pinned[name] = (server, principal)
        admitted = await self._admission.admit(replace(state, spec=replace(state.spec, name=name)))
        known = self._records.setdefault(server, WeakValueDictionary())
        hashes = {one.definition_hash for one in admitted.definitions}
        before = [same.record for one in hashes if (same := known.get(one)) is not None]
        said = ServerText(state.spec.description)
        records = await self._ingestion.take_in(server, admitted.definitions, before, said)
        if self._latest.get((whose, server)) != number:
            return
        kept = [known.setdefault(one.definition_hash, _Kept(one)) for one in records]
        listing = self._shared(server, kept, admitted)
        listings = self._listings.setdefault(server, {})
        old = listings.get(whose)
        listings[whose] = listing
        is_changed = self._join(server, listing)
        is_changed |= self._leave(server, old) if old is not None else False
        is_changed |= self._hear(server, admitted.instructions)
        self._change(whose)
        if is_changed:
            self._show_soon(server)

    def _shared(self, server: str, kept: Sequence[_Kept], admitted: Admitted) -> OwnListing:
        """The listing, or an equal one of another caller."""
        records = [one.record for one in kept]
        held = {name: replace(one, server=server) for name, one in admitted.held.items()}
        announced = {name: replace(one, server=server) for name, one in admitted.announced.items()}
        parts = (
            server,
            tuple(one.definition_hash for one in records),
            tuple(sorted(held.items(), key=lambda item: item[0])),
            tuple(sorted(announced.items(), key=lambda item: item[0])),
            tuple(one.definition_hash for one in admitted.withheld),
        )
        made = OwnListing({one.name: one for one in records}, held, announced, tuple(admitted.withheld), tuple(kept))
        return self._equal.setdefault(parts, made)

    def _join(self, server: str, listing: OwnListing) -> bool:
        """Whether this changes what the entry shows."""
        named, is_changed = self._named.setdefault(server, {}), False
        for name, record in listing.records.items():
            if (one := named.get(name)) is None:
                one = named[name] = _Named(record.definition)
                is_changed = True
            before = one.shared
            one.join(record.definition)
            is_changed |= one.shared is not before
        return is_changed

    def _leave(self, server: str, listing: OwnListing) -> bool:
        named, is_changed = self._named.get(server, {}), False
        for name, record in listing.records.items():
            if name in named and named[name].leave(record.definition):
                del named[name]
                is_changed = True
        return is_changed

    def _hear(self, server: str, instructions: str) -> bool:
        """Show the server's instructions while they are the same for every caller."""
        before = self._instructions.get(server)
        self._instructions[server] = instructions if before in (None, instructions) else ""
        return self._instructions[server] != before

    def _show_soon(self, server: str) -> None:
        """Show what an entry lists for its callers together, once for all changes of some time: if hundreds of callers
        have tools of their own, looking at all of them for each would never end.
        """
        if server not in self._to_show:
            self._to_show.add(server)
            self._taking_in.spawn(self._show_in_time(server))

    async def _show_in_time(self, server: str) -> None:
        await asyncio.sleep(max(0.0, self._next_show.get(server, 0.0) - time.monotonic()))
        self._to_show.discard(server)
        if server in self._named:
            pause = min(_LONGEST_PAUSE, _PAUSE_EACH * len(self._named[server]))
            self._next_show[server] = time.monotonic() + pause
            self._show_all(server)

    def _show_all(self, server: str) -> None:
        tools = tuple(one.shared for one in self._named.get(server, {}).values())
        self._show(server, Listing(tools=tools), self._instructions.get(server, ""))

    def _change(self, principal_id: str) -> None:
        self._versions[principal_id] += 1
        self._changed()


@dataclass(frozen=True)
class _Kept:
    """A record that several listings share."""

    record: ToolRecord


def in_common(one: Definition, other: Definition) -> Definition:
    """What two callers' definitions of one tool have in common: what a server tells one of them alone stays out."""
    left, right = one.sent(), other.sent()
    told = set(sentences(right.description or ""))
    said = " ".join(sentence for sentence in sentences(left.description or "") if sentence in told)
    schema = left.input_schema if left.input_schema == right.input_schema else {"type": "object"}
    return Definition.of(
        McpTool(
            name=left.name,
            title=left.title if left.title == right.title else None,
            description=said or None,
            inputSchema=schema,
            outputSchema=left.output_schema if left.output_schema == right.output_schema else None,
            annotations=left.annotations if left.annotations == right.annotations else None,
        )
    )
