"""Rows that gateways on one database write for each other: announcements, running gateways, ended sessions.

An announcement is part of the transaction that makes the change, so it is received if and only if the change is made,
whether by a gateway or by a command. PostgreSQL needs no rows for announcements: it has NOTIFY.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import delete, func, insert, select

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.tables import announcement, ended_session, gateway
from mcp_optimizer.db.transactions import Transactions, chunks, upsert
from mcp_optimizer.domain.gateways import Announcement, ChangeKind, PeerGateway

CHANNEL = "mcp_optimizer"
"""The channel of PostgreSQL's LISTEN and NOTIFY."""

_KEPT_MS = 60_000
"""Milliseconds for which an announcement is kept; every gateway reads many times a minute."""


class StoredAnnouncements(Transactions):
    """The announcements in a SQLite file."""

    async def add(self, bodies: Sequence[str]) -> None:
        async with self._writing() as connection:
            await _write(connection, bodies)


async def announce(connection: AsyncConnection, news: ChangeKind, *names: str) -> None:
    """Announce a change to all gateways, including this one, when this transaction is committed."""
    body = Announcement("", news, names).written()
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_notify(CHANNEL, body)))
    else:
        await _write(connection, [body])


async def _write(connection: AsyncConnection, bodies: Sequence[str]) -> None:
    now = time.time_ns() // 1_000_000
    await connection.execute(delete(announcement).where(announcement.c.at_ms < now - _KEPT_MS))
    await connection.execute(insert(announcement), [{"at_ms": now, "body": body} for body in bodies])


_FORGOTTEN_AFTER_MS = 86_400_000
"""Milliseconds after which the row of a gateway that was killed is deleted."""


class GatewayRows(Transactions):
    """The running gateways, and the sessions that clients ended."""

    async def seen(self, one: PeerGateway, now_ms: int) -> None:
        """Record that a gateway is running."""
        row = {**asdict(one), "seen_at_ms": now_ms}
        async with self._writing() as connection:
            statement = upsert(connection, gateway).values(row)
            changed = {name: statement.excluded[name] for name in ("address", "seen_at_ms")}
            await connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))
            await connection.execute(delete(gateway).where(gateway.c.seen_at_ms < now_ms - _FORGOTTEN_AFTER_MS))

    async def living(self, since_ms: int) -> list[PeerGateway]:
        """The gateways seen since `since_ms`, ordered by start."""
        columns = gateway.c
        wanted = (
            select(columns.id, columns.address, columns.version, columns.started_at_ms)
            .where(columns.seen_at_ms >= since_ms)
            .order_by(columns.started_at_ms, columns.id)
        )
        async with self._reading() as connection:
            return [PeerGateway(*row) for row in await connection.execute(wanted)]

    async def leave(self, gateway_id: str) -> None:
        """Delete the row of a gateway that stops."""
        async with self._writing() as connection:
            await connection.execute(delete(gateway).where(gateway.c.id == gateway_id))

    async def end_session(self, session_hash: str, until_ms: int, now_ms: int) -> None:
        """Record that a session was ended, so no gateway opens it again."""
        row = {"hash": session_hash, "until_ms": until_ms}
        async with self._writing() as connection:
            await connection.execute(upsert(connection, ended_session).values(row).on_conflict_do_nothing())
            await connection.execute(delete(ended_session).where(ended_session.c.until_ms < now_ms))
            await announce(connection, ChangeKind.ENDED, session_hash)

    async def is_ended(self, session_hash: str) -> bool:
        wanted = select(ended_session.c.hash).where(ended_session.c.hash == session_hash)
        async with self._reading() as connection:
            return (await connection.execute(wanted)).first() is not None

    async def ended_among(self, hashes: Iterable[str]) -> set[str]:
        """The hashes that belong to ended sessions."""
        found: set[str] = set()
        async with self._reading() as connection:
            for chunk in chunks(hashes):
                wanted = select(ended_session.c.hash).where(ended_session.c.hash.in_(chunk))
                found |= set((await connection.execute(wanted)).scalars())
        return found
