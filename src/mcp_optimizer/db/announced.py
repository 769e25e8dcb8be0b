"""Writes announcements to a SQLite file, where other gateways read them; deletes old ones. PostgreSQL needs none."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import delete, insert

from mcp_optimizer.db.shared_tables import announcement
from mcp_optimizer.db.transactions import Transactions

_KEPT_MS = 60_000
"""Milliseconds for which an announcement is kept: every gateway reads many times a minute."""


class StoredAnnouncements(Transactions):
    """The announcements in the file."""

    async def add(self, bodies: Sequence[str]) -> None:
        now = time.time_ns() // 1_000_000
        async with self._writing() as connection:
            await connection.execute(delete(announcement).where(announcement.c.at_ms < now - _KEPT_MS))
            await connection.execute(insert(announcement), [{"at_ms": now, "body": body} for body in bodies])
