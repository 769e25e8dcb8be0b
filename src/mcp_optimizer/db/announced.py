"""Writes announcements to a SQLite file, where other gateways read them; deletes old ones. PostgreSQL needs none.

What is announced in the transaction that changes something is heard if and only if it is changed, whoever changes it: a
gateway, or a command.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.shared_tables import announcement
from mcp_optimizer.db.transactions import Transactions
from mcp_optimizer.domain.announcements import Announcement, News

CHANNEL = "mcp_optimizer"
"""Of PostgreSQL's LISTEN and NOTIFY."""

_KEPT_MS = 60_000
"""Milliseconds for which an announcement is kept: every gateway reads many times a minute."""


class StoredAnnouncements(Transactions):
    """The announcements in the file."""

    async def add(self, bodies: Sequence[str]) -> None:
        async with self._writing() as connection:
            await _write(connection, bodies)


async def announce(connection: AsyncConnection, news: News, *names: str) -> None:
    """Tell all gateways, this one too, as soon as this transaction is committed."""
    body = Announcement("", news, names).written()
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_notify(CHANNEL, body)))
    else:
        await _write(connection, [body])


async def _write(connection: AsyncConnection, bodies: Sequence[str]) -> None:
    now = time.time_ns() // 1_000_000
    await connection.execute(delete(announcement).where(announcement.c.at_ms < now - _KEPT_MS))
    await connection.execute(insert(announcement), [{"at_ms": now, "body": body} for body in bodies])
