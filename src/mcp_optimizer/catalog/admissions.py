"""Tracks listings on their way into the catalog: those that wait, and which tools of each were admitted.

Called by the live catalog. Does not know pins; the code that admits tools is passed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.domain.pins import Admitted, HeldTool, read_of
from mcp_optimizer.upstream.state import UpstreamState


class WaitingListings:
    """Listings that wait to be ingested, a few at a time, so two thousand servers that start together do not cause two
    thousand tasks.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, UpstreamState] = {}
        self._latest: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self.under_way = 0
        """Number of listings being ingested."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether no listing waits or is being ingested."""
        return not self._waiting and not self.under_way

    def awaits(self, server: str) -> bool:
        return server in self._waiting

    def supersede(self, server: str) -> None:
        """Drop earlier listings of a server that are not ingested yet, because it listed its tools again."""
        self._latest[server] = next(self._numbers)
        self._waiting.pop(server, None)

    def wait(self, state: UpstreamState) -> None:
        self._waiting[state.name] = state

    def take(self) -> tuple[UpstreamState, int]:
        """Take the listing that has waited longest, with its number; `end` ends its ingestion. One must be waiting."""
        self.under_way += 1
        state = self._waiting.pop(next(iter(self._waiting)))
        return state, self._latest[state.name]

    def end(self) -> None:
        self.under_way -= 1

    def is_latest(self, server: str, number: int) -> bool:
        return self._latest.get(server) == number

    def forget(self, server: str) -> None:
        """Drop the server's waiting listing, and discard one that is being ingested."""
        self._waiting.pop(server, None)
        self._latest.pop(server, None)


Held = Mapping[tuple[str, str], HeldTool]
"""Tools by server and their own name on that server."""


@dataclass(frozen=True)
class Unapproved:
    """Listed tools that are not approved in their present form: held ones, and ones that may be used anyway."""

    held: Held = field(default_factory=dict)
    announced: Held = field(default_factory=dict)
    instructions: Mapping[str, HeldTool] = field(default_factory=dict)
    """Servers whose present instructions are not approved. Held instructions are not in the server's state."""

    def of(self, servers: Collection[str]) -> Unapproved:
        """The unapproved tools and instructions of some servers."""
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

    async def recalled(self, state: UpstreamState) -> Admitted:
        """What of a listing from before may be found until the server lists its tools again. Decides nothing."""
        ...


class AdmitsAll:
    """Admits every tool, for a catalog whose servers are trusted or never called."""

    async def admit(self, state: UpstreamState) -> Admitted:
        return Admitted(state.listing.tools, instructions=read_of(state.instructions))

    async def recalled(self, state: UpstreamState) -> Admitted:
        return await self.admit(state)


class Admissions:
    """The listings that are in the catalog, and which tools of each were admitted."""

    def __init__(self, admission: ToolAdmission) -> None:
        self._admission = admission
        self._admitted: dict[str, Admitted] = {}
        self._fingerprints: dict[str, tuple[int, int, str, str, str]] = {}
        self._instructions: dict[str, str] = {}
        self._under_way: dict[str, UpstreamState] = {}

    def has(self, state: UpstreamState) -> bool:
        """Whether a server lists the same tools as before, so there is nothing to do."""
        return self._fingerprints.get(state.name) == _fingerprint(state)

    async def of(self, state: UpstreamState) -> Admitted:
        """The part of a listing that may be used."""
        return await self._admission.admit(state)

    async def recalled(self, state: UpstreamState) -> Admitted:
        """What may be found of a listing from before."""
        return await self._admission.recalled(state)

    def recall(self, state: UpstreamState, admitted: Admitted) -> None:
        """This listing from before is in the catalog, until the server lists its tools again."""
        self._admitted[state.name] = admitted
        self._instructions[state.name] = state.instructions

    def was_whole(self, server: str) -> bool:
        """Whether the server's listing in the catalog, if any, was admitted completely."""
        return server not in self._admitted or self._admitted[server].is_whole

    def is_under_way(self, server: str) -> bool:
        return server in self._under_way

    def settle(self, state: UpstreamState, admitted: Admitted) -> None:
        """Record that a listing is now in the catalog."""
        self._fingerprints[state.name] = _fingerprint(state)
        self._admitted[state.name] = admitted
        self._instructions[state.name] = state.instructions

    def forget(self, server: str) -> None:
        """Record that the catalog no longer has anything of this server."""
        self._fingerprints.pop(server, None)
        self._admitted.pop(server, None)
        self._instructions.pop(server, None)
        self._under_way.pop(server, None)

    @contextmanager
    def under_way(self, state: UpstreamState) -> Iterator[None]:
        """Mark a listing as being ingested, until ingestion succeeds or fails."""
        self._under_way[state.name] = state
        try:
            yield
        finally:
            if self._under_way.get(state.name) is state:
                del self._under_way[state.name]

    def again(self, state: UpstreamState, records: Sequence[ToolRecord]) -> UpstreamState | None:
        """The server's last listing for another decision, rebuilt from the admitted and the withheld tools."""
        if state.name in self._under_way:
            return self._under_way[state.name]
        if state.name not in self._fingerprints:
            return None
        del self._fingerprints[state.name]
        tools = (*(record.definition for record in records), *self._admitted[state.name].withheld)
        listing = replace(state.listing, tools=tools, summary_of=None)
        return replace(state, listing=listing, instructions=self._instructions[state.name])

    def unapproved(self) -> Unapproved:
        """The unapproved tools and instructions of all servers as they are in the catalog now."""
        found = list(self._admitted.values())
        return Unapproved(
            _by_key(one.held for one in found),
            _by_key(one.announced for one in found),
            {other.server: other for one in found if (other := one.other_instructions) is not None},
        )

    def shown(self, state: UpstreamState) -> UpstreamState:
        """The state that the catalog keeps: with the number of tools only, and only admitted instructions."""
        is_known = self._instructions.get(state.name) == state.instructions
        said = self._admitted[state.name].instructions if is_known else ""
        listing = state.listing.summary() if state.listing.tools else state.listing
        return replace(state, listing=listing, instructions=said)


def _by_key(found: Iterable[Mapping[str, HeldTool]]) -> Held:
    return {(tool.server, tool.name): tool for tools in found for tool in tools.values()}


def _fingerprint(state: UpstreamState) -> tuple[int, int, str, str, str]:
    """A fingerprint that is equal for listings of the same definitions, in any order, by the same server with the same
    description and instructions.
    """
    tools, spec = state.listing.tools, state.spec
    number = sum(hash(tool.definition_hash) for tool in tools)
    return len(tools), number, spec.fingerprint, spec.description, state.instructions
