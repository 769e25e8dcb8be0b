"""A tool as clients see it, and the table of all possible names of the tools of one index. Values only.

The table is built in a thread, once per index. Which of its names a tool has at a moment depends on the other running
servers; see `running`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mcp_optimizer.catalog.record import ToolRecord
from mcp_optimizer.domain.naming import ServerNames
from mcp_optimizer.domain.tools import McpTool

_BEGINNINGS = (5, 2)
"""Lengths of the prefixes by which similar names are looked up, nearest first."""


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool of a running server, as clients see it."""

    record: ToolRecord
    name: str
    tokens: int

    @property
    def server(self) -> str:
        return self.record.server

    @property
    def key(self) -> tuple[str, str]:
        """Its server and its own name there, which no other tool shares."""
        record = self.record
        return record.server, record.definition.name

    @property
    def definition(self) -> McpTool:
        """The definition under its public name; otherwise exactly what the server sent."""
        details = self.record.details
        return details if details.name == self.name else details.model_copy(update={"name": self.name})


@dataclass(frozen=True)
class NameTable:
    """The positions of an index's tools: by server, by every possible name, and by prefix of the name.

    `records` are ordered by server, then by name.
    """

    records: tuple[ToolRecord, ...] = ()
    servers: ServerNames = field(default_factory=ServerNames)
    ranges: Mapping[str, range] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    """The first tool of each name."""
    further: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The other tools of a shared name. Most names belong to one tool, and a list for each would be most of the work.
    """
    beginnings: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: Sequence[ToolRecord], servers: ServerNames, others: Iterable[tuple[str, int]] = ()
    ) -> NameTable:
        """`others` are names in addition to the tools' own, each with its tool's position."""
        starts: dict[str, int] = {}
        ends: dict[str, int] = {}
        first: dict[str, int] = {}
        further: dict[str, list[int]] = {}
        beginnings: dict[str, list[int]] = {}
        for position, record in enumerate(records):
            starts.setdefault(record.server, position)
            ends[record.server] = position + 1
            for beginning in _beginnings(record.name):
                beginnings.setdefault(beginning, []).append(position)
        owns = ((record.name, position) for position, record in enumerate(records))
        for name, position in chain(owns, others):
            if first.setdefault(name, position) != position:
                further.setdefault(name, []).append(position)
        ranges = {server: range(start, ends[server]) for server, start in starts.items()}
        return cls(tuple(records), servers, ranges, first, further, beginnings)

    def named(self, name: str) -> Sequence[int]:
        """Positions of the tools that have, or may get, this name."""
        first = self.first.get(name)
        return () if first is None else (first, *self.further.get(name, ()))

    def of_server(self, server: str) -> range:
        return self.ranges.get(server, range(0))

    def position(self, server: str, own: str) -> int | None:
        """The position of a server's tool with this own name."""
        first = self.first.get(own)
        if first is not None and self.records[first].server == server and self.records[first].name == own:
            # As nearly always: no other server has such a tool.
            return first
        found = self.of_server(server)
        at = bisect_left(found, own, key=lambda position: self.records[position].name)
        return found[at] if at < len(found) and self.records[found[at]].name == own else None

    def called(self, own: str) -> list[int]:
        """Positions of the tools with this own name."""
        return [position for position in self.named(own) if self.records[position].name == own]

    def beginning_like(self, name: str) -> Iterator[int]:
        """Positions of the tools whose own names begin like a name, most similar first."""
        for beginning in _beginnings(name):
            yield from self.beginnings.get(beginning, ())


def _beginnings(name: str) -> list[str]:
    return [name[:length].lower() for length in _BEGINNINGS]
