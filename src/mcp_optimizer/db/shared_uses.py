"""How often tools were called, counted once for all gateways, so that each ranks tools alike."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping

from sqlalchemy import select

from mcp_optimizer.db.shared_tables import shared_uses
from mcp_optimizer.db.transactions import Transactions, upsert
from mcp_optimizer.domain.events import ToolKey

_OLDEST_MS = 3_600_000
"""Milliseconds after which a gateway that starts has tools counted again."""


class SharedUses(Transactions):
    """The counts that all gateways of a configuration use."""

    async def read(self, configuration: str) -> dict[ToolKey, int] | None:
        """The counts; None if nobody has counted yet."""
        known = await self._row(configuration)
        return None if known is None else known[1]

    async def agreed(
        self, configuration: str, count: Callable[[], Awaitable[Mapping[ToolKey, int]]]
    ) -> tuple[dict[ToolKey, int], bool]:
        """The counts, and whether they are new: counted now, because there were none or they were old."""
        known = await self._row(configuration)
        now = time.time_ns() // 1_000_000
        if known is not None and now - known[0] < _OLDEST_MS:
            return known[1], False
        counts = dict(await count())
        if not counts:
            return counts, False
        new = {"at_ms": now, "counts": json.dumps([[*key, number] for key, number in sorted(counts.items())])}
        async with self._writing() as connection:
            adding = upsert(connection, shared_uses).values(configuration=configuration, **new)
            # Of several that start together, one is first, and the others use what it counted.
            still_old = shared_uses.c.at_ms <= now - _OLDEST_MS
            await connection.execute(
                adding.on_conflict_do_update(index_elements=["configuration"], set_=new, where=still_old)
            )
        return await self.read(configuration) or counts, True

    async def _row(self, configuration: str) -> tuple[int, dict[ToolKey, int]] | None:
        query = select(shared_uses).where(shared_uses.c.configuration == configuration)
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return row.at_ms, {(server, tool): number for server, tool, number in json.loads(row.counts)}
