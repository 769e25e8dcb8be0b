"""Which servers one command starts: those that are not known yet. What is stored stands for the others.

A server that was listed before rests, and starts only if the command calls it. One that failed to start moments ago is
shown as failed and not tried again: nobody should wait for it at every command. Called by the command line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.catalog.ingestion import FAILED, FailedStart, failed_starts
from mcp_optimizer.config.serverfile.spec import ServerSpec, Start
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.terminal_text import span
from mcp_optimizer.upstream.state import UpstreamState

FAILURES_HOLD = 600.0
"""Seconds after which a server that failed to start is tried again."""

STARTS_HOLD = 3_600.0
"""Seconds after which a server that started is tried again where servers are checked."""


@dataclass(frozen=True)
class StoredStarts:
    """When servers were listed last, and how those that do not start failed; by name."""

    listed_at: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, FailedStart] = field(default_factory=dict)

    @property
    def as_of(self) -> float | None:
        """When the oldest of the listings was made; None if there is none."""
        return min(self.listed_at.values(), default=None)


async def stored_starts(settings: Settings, specs: Sequence[ServerSpec]) -> StoredStarts:
    """What the catalog database says of these servers; nothing if it cannot be read."""
    if (place := settings.database_place) is None or not specs:
        return StoredStarts()
    from mcp_optimizer.db.catalog import Catalog
    from mcp_optimizer.db.database import open_database

    entries = {spec.name: spec.fingerprint for spec in specs}
    try:
        database = await open_database(place)
        try:
            catalog = Catalog(database)
            listed, stored = await catalog.listed_at(entries), await catalog.lists(entries, FAILED)
        finally:
            await database.close()
    except (CatalogError, OSError):
        # Said where the catalog itself is opened.
        return StoredStarts()
    return StoredStarts(listed, failed_starts(specs, stored))


async def listed_tools(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, frozenset[str]]:
    """The names of the tools that servers listed last with these entries; nothing if the database cannot be read."""
    if (place := settings.database_place) is None or not specs:
        return {}
    from mcp_optimizer.db.catalog import Catalog
    from mcp_optimizer.db.database import open_database

    try:
        database = await open_database(place)
        try:
            stored = await Catalog(database).listed({spec.name: spec.fingerprint for spec in specs})
        finally:
            await database.close()
    except (CatalogError, OSError):
        return {}
    return {name: frozenset(json.loads(text)["name"] for text in tools) for name, tools in stored.items()}


def resting(specs: Sequence[ServerSpec], stored: StoredStarts, now: float) -> list[ServerSpec]:
    """The servers as a command starts them: on demand, and not at all if they failed moments ago."""
    found = []
    for spec in specs:
        failed = stored.failed.get(spec.name)
        if failed is not None and not spec.problem and not spec.disabled and 0 <= now - failed.at < FAILURES_HOLD:
            said = f"{failed.reason.rstrip('.')} ({span(now - failed.at)} ago)"
            spec = replace(spec, problem=said, problem_kind=failed.kind or FailureKind.CLOSED)
        found.append(replace(spec, start=Start.ON_DEMAND))
    return found


async def resting_optimizer(settings: Settings) -> tuple[Optimizer, StoredStarts]:
    """An optimizer for one command, not started yet, and what it knows from before."""
    specs = server_specs(settings)
    stored = await stored_starts(settings, specs)
    return Optimizer(resting(specs, stored, time.time()), settings, serves=False), stored


def starting_optimizer(settings: Settings) -> Optimizer:
    """An optimizer that starts every server, whatever the entries say."""
    specs = [replace(spec, start=Start.WITH_THE_GATEWAY) for spec in server_specs(settings)]
    return Optimizer(specs, settings, serves=False)


async def checking_optimizer(settings: Settings, running: Collection[str]) -> tuple[Optimizer, Mapping[str, float]]:
    """An optimizer that tries every server, except those `running` elsewhere and those that started moments ago; and
    when those were listed last.
    """
    specs = server_specs(settings)
    listed_at, now = (await stored_starts(settings, specs)).listed_at, time.time()
    works = {name: at for name, at in listed_at.items() if name in running or 0 <= now - at < STARTS_HOLD}
    chosen = [replace(one, start=Start.ON_DEMAND if one.name in works else Start.WITH_THE_GATEWAY) for one in specs]
    if all(one.name in works for one in specs):
        # Nothing is new. What is new is embedded here, while servers start, and not at the first search.
        settings = settings.model_copy(update={"encoder": "none"})
    return Optimizer(chosen, settings, serves=False), works


async def remember_failures(optimizer: Optimizer, states: Sequence[UpstreamState]) -> None:
    """Store which servers were tried and failed; one that waits for a login answers quickly, and is asked each time."""
    failed = [state for state in states if state.status is ServerStatus.FAILED and not state.spec.problem]
    if failed:
        await optimizer.ingestion.store_failures(failed)
