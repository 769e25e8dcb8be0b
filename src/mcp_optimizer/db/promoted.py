"""Reads and writes of tools that were registered after their first use, by the configuration whose lists have them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import delete, select

from mcp_optimizer.db.shared_tables import promoted_tool
from mcp_optimizer.db.transactions import Transactions, upsert

_KEPT_MS = 7 * 24 * 3_600_000
"""Milliseconds for which a promotion counts: after a week, use itself has moved the tool up or has not."""


class PromotedTools(Transactions):
    """The promotions of all gateways, so that each lists the same tools in the same order."""

    async def read(self, configuration: str, most: int) -> list[str]:
        """The names of promoted tools, the first promoted first."""
        table = promoted_tool
        query = select(table.c.tool).where(table.c.configuration == configuration)
        async with self._reading() as connection:
            rows = await connection.execute(query.order_by(table.c.at_ms, table.c.tool).limit(most))
            return [row.tool for row in rows]

    async def add(self, configuration: str, tools: Sequence[str]) -> None:
        """Tools that are promoted already keep their place."""
        now = time.time_ns() // 1_000_000
        rows = [{"configuration": configuration, "tool": tool, "at_ms": now} for tool in sorted(set(tools))]
        async with self._writing() as connection:
            # Here and not when reading, so that all gateways forget it at once.
            await connection.execute(delete(promoted_tool).where(promoted_tool.c.at_ms < now - _KEPT_MS))
            await connection.execute(upsert(connection, promoted_tool).on_conflict_do_nothing(), rows)
