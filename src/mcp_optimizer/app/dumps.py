"""Servers that are known by dumps of their tools/list only: shown, measured, and never started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mcp_optimizer.app.parts import Parts
from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.metrics.sizes import MANY, Making, Sizes, measured_beside
from mcp_optimizer.upstream.dumps import read_dumps
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.state import UpstreamState


def dumped_servers(folder: Path) -> list[UpstreamState]:
    """One server a file, as if it ran."""
    return [
        UpstreamState(ServerSpec(name=name, transport=Transport.STDIO), ServerStatus.RUNNING, listing)
        for name, listing in read_dumps(folder)
    ]


def are_many(dumps: Sequence[UpstreamState]) -> bool:
    """Whether it pays to measure them in other processes."""
    return sum(len(state.listing.tools) for state in dumps) >= MANY


async def measure(parts: Parts, dumps: Sequence[UpstreamState]) -> Sizes:
    """Measure in other processes, and show what was measured; nothing is indexed."""
    settings = parts.settings
    kinds = (settings.signature_notes, settings.dialect)
    making = Making(settings.encoding, *kinds, settings.groups, settings.schema_notes)
    measured = await measured_beside([(state.name, state.listing.tools) for state in dumps], making)
    parts.forms.learn(measured.compressed)
    states = {state.name: replace(state, listing=state.listing.summary()) for state in dumps}
    baseline = sum(tool.tokens for tool in measured.tools)
    parts.catalog.show(Snapshot(measured.tools, states=states, baseline_tokens=baseline))
    return measured.sizes
