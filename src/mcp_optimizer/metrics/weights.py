"""What the tools of a catalog cost, and which of them nobody called. Pure; read by reports, advice and pages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import ToolKey


@dataclass(frozen=True)
class Weight:
    """A tool of the catalog: whose it is, what it is called, what its definition costs."""

    server: str
    tool: str
    tokens: int

    @property
    def key(self) -> ToolKey:
        return (self.server, self.tool)


@dataclass(frozen=True)
class UncalledTools:
    """The tools of one server that nobody called."""

    server: str
    names: tuple[str, ...]
    """Heaviest first."""
    of: int
    """Tools that the server has."""
    tokens: int

    @property
    def tools(self) -> int:
        return len(self.names)


def weights(snapshot: Snapshot) -> list[Weight]:
    """The running tools by what their definitions cost."""
    return [Weight(tool.server, tool.record.name, tool.tokens) for tool in snapshot.running]


def never_called(catalog: Iterable[Weight], called: Mapping[ToolKey, int]) -> tuple[UncalledTools, ...]:
    """By server: the tools that nobody called; the server with most tokens of them first."""
    every, never = Counter[str](), defaultdict[str, list[Weight]](list)
    for weight in catalog:
        every[weight.server] += 1
        if not called.get(weight.key):
            never[weight.server].append(weight)
    rows = [
        UncalledTools(
            server=server,
            names=tuple(weight.tool for weight in sorted(own, key=lambda weight: (-weight.tokens, weight.tool))),
            of=every[server],
            tokens=sum(weight.tokens for weight in own),
        )
        for server, own in never.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.server)))
