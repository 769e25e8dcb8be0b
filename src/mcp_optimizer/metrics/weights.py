"""The cost of a catalog's tools, and which of them were never called. Pure; used by reports, advice and pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.events import ToolKey


@dataclass(frozen=True)
class Weight:
    """A tool of the catalog: its server, its name and the cost of its definition."""

    server: str
    tool: str
    tokens: int
    sent: int | None = None
    """The tokens that clients send of it to a model; None: all of them."""

    @property
    def key(self) -> ToolKey:
        return (self.server, self.tool)


@dataclass(frozen=True)
class UncalledTools:
    """The tools of one server that were never called."""

    server: str
    names: tuple[str, ...]
    """By cost, highest first."""
    of: int
    """The number of tools that the server has."""
    tokens: int

    @property
    def tools(self) -> int:
        return len(self.names)


def weights(snapshot: Snapshot) -> list[Weight]:
    """The running tools with the cost of their definitions."""
    return [Weight(tool.server, tool.record.name, tool.tokens, tool.record.sent_tokens) for tool in snapshot.running]


def by_server(catalog: Iterable[Weight]) -> dict[str, list[Weight]]:
    """The tools of each server."""
    found: dict[str, list[Weight]] = defaultdict(list)
    for weight in catalog:
        found[weight.server].append(weight)
    return dict(found)


def total(catalog: Iterable[Weight]) -> int:
    """The total cost of some tools."""
    return sum(weight.tokens for weight in catalog)


def sent_total(catalog: Iterable[Weight]) -> int:
    """The tokens of some tools that are sent by clients which send all definitions."""
    return sum(weight.tokens if weight.sent is None else weight.sent for weight in catalog)


def never_called(catalog: Iterable[Weight], called: Mapping[ToolKey, int]) -> tuple[UncalledTools, ...]:
    """The tools that were never called, by server; the server where they cost most comes first."""
    rows = []
    for server, every in by_server(catalog).items():
        own = sorted((w for w in every if not called.get(w.key)), key=lambda weight: (-weight.tokens, weight.tool))
        if own:
            rows.append(UncalledTools(server, tuple(weight.tool for weight in own), len(every), total(own)))
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.server)))
