"""What the tools of a catalog cost, and which of them were never called. Pure; read by reports, advice and pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import ToolKey


@dataclass(frozen=True)
class Weight:
    """A tool of the catalog: its server, its name, the cost of its definition."""

    server: str
    tool: str
    tokens: int
    sent: int | None = None
    """What clients send of it to a model; None: all of it."""

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
    """The running tools by the cost of their definitions."""
    return [Weight(tool.server, tool.record.name, tool.tokens, tool.record.sent_tokens) for tool in snapshot.running]


def by_server(catalog: Iterable[Weight]) -> dict[str, list[Weight]]:
    """The tools of each server."""
    found: dict[str, list[Weight]] = defaultdict(list)
    for weight in catalog:
        found[weight.server].append(weight)
    return dict(found)


def total(catalog: Iterable[Weight]) -> int:
    """What some tools cost together."""
    return sum(weight.tokens for weight in catalog)


def sent_total(catalog: Iterable[Weight]) -> int:
    """What clients that send all definitions send of some tools."""
    return sum(weight.tokens if weight.sent is None else weight.sent for weight in catalog)


def never_called(catalog: Iterable[Weight], called: Mapping[ToolKey, int]) -> tuple[UncalledTools, ...]:
    """By server: the tools that nobody called; the server with most tokens of them first."""
    rows = []
    for server, every in by_server(catalog).items():
        own = sorted((w for w in every if not called.get(w.key)), key=lambda weight: (-weight.tokens, weight.tool))
        if own:
            rows.append(UncalledTools(server, tuple(weight.tool for weight in own), len(every), total(own)))
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.server)))
