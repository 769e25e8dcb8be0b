"""A tool as clients see it, and the table of all names that the tools of one index may have. Values only.

The table is made beside the event loop, once for an index. Which of its names a tool has at a moment depends on what
else runs then: `running` knows.
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
"""Letters at the beginning of a name by which names that are spelt alike are looked up, the nearest first."""


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
    def definition(self) -> McpTool:
        """The definition under its public name; otherwise exactly what the server sent."""
        details = self.record.details
        return details if details.name == self.name else details.model_copy(update={"name": self.name})


@dataclass(frozen=True)
class NameTable:
    """Where the tools of an index stand: by server, by every name that they may have, and by how these begin.

    `records` are in the order of servers, and of names within a server.
    """

    records: tuple[ToolRecord, ...] = ()
    servers: ServerNames = field(default_factory=ServerNames)
    ranges: Mapping[str, range] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    """The first tool of each name."""
    further: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The others of a name that several have. Most names are one tool's: a list for each would be most of the work."""
    beginnings: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: Sequence[ToolRecord], servers: ServerNames, others: Iterable[tuple[str, int]] = ()
    ) -> NameTable:
        """`others`: names besides the tools' own, each with the position of its tool."""
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
        """Where the tools stand that are called so, or may come to be."""
        first = self.first.get(name)
        return () if first is None else (first, *self.further.get(name, ()))

    def of_server(self, server: str) -> range:
        return self.ranges.get(server, range(0))

    def position(self, server: str, own: str) -> int | None:
        """Where a server's tool of this own name stands."""
        found = self.of_server(server)
        at = bisect_left(found, own, key=lambda position: self.records[position].name)
        return found[at] if at < len(found) and self.records[found[at]].name == own else None

    def called(self, own: str) -> list[int]:
        """Where the tools stand that their servers call so."""
        return [position for position in self.named(own) if self.records[position].name == own]

    def beginning_like(self, name: str) -> Iterator[int]:
        """Where the tools stand whose own names begin as a name does, the most alike first."""
        for beginning in _beginnings(name):
            yield from self.beginnings.get(beginning, ())


def _beginnings(name: str) -> list[str]:
    return [name[:length].lower() for length in _BEGINNINGS]
