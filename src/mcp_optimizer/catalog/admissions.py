"""Listings on their way into the catalog: those that wait, and what was admitted of each.

Called by the live catalog. Who admits is passed in; pins are not known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.domain.pins import Admitted, HeldTool, read_of
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.upstream.state import UpstreamState


class WaitingListings:
    """A few are taken in at a time, so two thousand servers that start together do not cause two thousand tasks."""

    def __init__(self) -> None:
        self._waiting: dict[str, UpstreamState] = {}
        self._latest: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self.under_way = 0
        """How many are being taken in."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether none waits, or is being taken in."""
        return not self._waiting and not self.under_way

    def awaits(self, server: str) -> bool:
        return server in self._waiting

    def supersede(self, server: str) -> None:
        """A server listed its tools: earlier listings that are not taken in yet are not needed any more."""
        self._latest[server] = next(self._numbers)
        self._waiting.pop(server, None)

    def wait(self, state: UpstreamState) -> None:
        self._waiting[state.name] = state

    def take(self) -> tuple[UpstreamState, int]:
        """The one that has waited longest, and its number, to be taken in until `end`; there must be one."""
        self.under_way += 1
        state = self._waiting.pop(next(iter(self._waiting)))
        return state, self._latest[state.name]

    def end(self) -> None:
        self.under_way -= 1

    def is_latest(self, server: str, number: int) -> bool:
        return self._latest.get(server) == number

    def forget(self, server: str) -> None:
        """Nothing of this server is to be taken in."""
        self._waiting.pop(server, None)
        self._latest.pop(server, None)


Held = Mapping[tuple[str, str], HeldTool]
"""By server and the tool's own name there."""


@dataclass(frozen=True)
class Unapproved:
    """Listed tools that nobody approved as they are: those that are held, and those that are used all the same."""

    held: Held = field(default_factory=dict)
    announced: Held = field(default_factory=dict)
    instructions: Mapping[str, HeldTool] = field(default_factory=dict)
    """Servers whose instructions nobody approved as they are. Held ones are not in the server's state."""

    def of(self, servers: Collection[str]) -> Unapproved:
        """Those of some servers."""
        if not self.held and not self.announced and not self.instructions:
            return self
        return Unapproved(
            {key: tool for key, tool in self.held.items() if key[0] in servers},
            {key: tool for key, tool in self.announced.items() if key[0] in servers},
            {server: other for server, other in self.instructions.items() if server in servers},
        )


class ToolAdmission(Protocol):
    """Decides which tools of a listing may be found and called."""

    async def admit(self, state: UpstreamState) -> Admitted: ...

    async def recalled(self, state: UpstreamState) -> Sequence[Definition]:
        """Which tools of a listing from before may be found until the server lists them again. Decides nothing."""
        ...


class AdmitsAll:
    """For a catalog whose servers are trusted, or never called."""

    async def admit(self, state: UpstreamState) -> Admitted:
        return Admitted(state.listing.tools, instructions=read_of(state.instructions))

    async def recalled(self, state: UpstreamState) -> Sequence[Definition]:
        return state.listing.tools


class Admissions:
    """The listings that are in the catalog, and what of each was admitted."""

    def __init__(self, admission: ToolAdmission) -> None:
        self._admission = admission
        self._admitted: dict[str, Admitted] = {}
        self._fingerprints: dict[str, tuple[int, int, str, str, str]] = {}
        self._instructions: dict[str, str] = {}
        self._under_way: dict[str, UpstreamState] = {}

    def has(self, state: UpstreamState) -> bool:
        """Whether a server lists the same tools as before, so that there is nothing to do."""
        return self._fingerprints.get(state.name) == _fingerprint(state)

    async def of(self, state: UpstreamState) -> Admitted:
        """What may be used of a listing."""
        return await self._admission.admit(state)

    async def recalled(self, state: UpstreamState) -> Sequence[Definition]:
        """What may be found of a listing from before."""
        return await self._admission.recalled(state)

    def was_whole(self, server: str) -> bool:
        """Whether nothing was known against the listing that is in the catalog."""
        return server not in self._admitted or self._admitted[server].is_whole

    def is_under_way(self, server: str) -> bool:
        return server in self._under_way

    def settle(self, state: UpstreamState, admitted: Admitted) -> None:
        """This listing is in the catalog now."""
        self._fingerprints[state.name] = _fingerprint(state)
        self._admitted[state.name] = admitted
        self._instructions[state.name] = state.instructions

    def forget(self, server: str) -> None:
        """Nothing of this server is in the catalog any more."""
        self._fingerprints.pop(server, None)
        self._admitted.pop(server, None)
        self._instructions.pop(server, None)
        self._under_way.pop(server, None)

    @contextmanager
    def under_way(self, state: UpstreamState) -> Iterator[None]:
        """While a listing is taken in, whether or not it gets there."""
        self._under_way[state.name] = state
        try:
            yield
        finally:
            if self._under_way.get(state.name) is state:
                del self._under_way[state.name]

    def again(self, state: UpstreamState, records: Sequence[ToolRecord]) -> UpstreamState | None:
        """The server's last listing, to be considered again: put together from what was admitted and what was not."""
        if state.name in self._under_way:
            return self._under_way[state.name]
        if state.name not in self._fingerprints:
            return None
        del self._fingerprints[state.name]
        tools = (*(record.definition for record in records), *self._admitted[state.name].withheld)
        listing = replace(state.listing, tools=tools, summary_of=None)
        return replace(state, listing=listing, instructions=self._instructions[state.name])

    def unapproved(self) -> Unapproved:
        """Of all servers, as they are in the catalog now."""
        found = list(self._admitted.values())
        return Unapproved(
            _by_key(one.held for one in found),
            _by_key(one.announced for one in found),
            {other.server: other for one in found if (other := one.other_instructions) is not None},
        )

    def shown(self, state: UpstreamState) -> UpstreamState:
        """A state for keeping: with the number of its tools, and no instructions but those that were admitted."""
        is_known = self._instructions.get(state.name) == state.instructions
        said = self._admitted[state.name].instructions if is_known else ""
        listing = state.listing.summary() if state.listing.tools else state.listing
        return replace(state, listing=listing, instructions=said)


def _by_key(found: Iterable[Mapping[str, HeldTool]]) -> Held:
    return {(tool.server, tool.name): tool for tools in found for tool in tools.values()}


def _fingerprint(state: UpstreamState) -> tuple[int, int, str, str, str]:
    """The same for two listings of the same definitions, in any order, by the same server with the same words."""
    tools, spec = state.listing.tools, state.spec
    number = sum(hash(tool.definition_hash) for tool in tools)
    return len(tools), number, spec.fingerprint, spec.description, state.instructions
