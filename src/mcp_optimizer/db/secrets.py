"""Reads and writes of secrets, by kind and name. They come encrypted: nothing here can read one, or knows a key.

One row names the key that all others are encrypted with. Whoever writes says which key was used, and a row encrypted
with any other key is refused, so that a process that missed a change of the key cannot write what nobody can open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, select, update
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.tables import secret
from mcp_optimizer.db.transactions import Transactions, upsert

_KEY = ("key", "current")
_PRIMARY = ["kind", "name"]


class SecretRow(NamedTuple):
    """A secret as it is stored."""

    kind: str
    name: str
    body: bytes


class SealedRows(NamedTuple):
    """All secrets, and the id of the key that they are encrypted with; None before the first one."""

    key_id: bytes | None
    rows: tuple[SecretRow, ...]


class StoredSecrets(Transactions):
    """Encrypted bodies by kind and name, who may renew one, and the id of their key."""

    async def read(self, kind: str, name: str) -> bytes | None:
        async with self._reading() as connection:
            return await _body(connection, (kind, name))

    async def names(self, kind: str) -> dict[str, int]:
        """The names of all secrets of a kind, and when each was written, in milliseconds."""
        wanted = select(secret.c.name, secret.c.at_ms).where(secret.c.kind == kind, secret.c.body != b"")
        async with self._reading() as connection:
            rows = await connection.execute(wanted.order_by(secret.c.name))
            return {row.name: row.at_ms for row in rows}

    async def key_id(self) -> bytes | None:
        """The id of the key that everything is encrypted with."""
        async with self._reading() as connection:
            return await _body(connection, _KEY)

    async def write(self, kind: str, name: str, body: bytes, key_id: bytes) -> bool:
        """Write one; false, and nothing is written, if `key_id` is not the current key. A claim stays."""
        async with self._writing(alone=True) as connection:
            if await _body(connection, _KEY) != key_id:
                return False
            await _put(connection, SecretRow(kind, name, body))
        return True

    async def delete(self, kind: str, name: str) -> bool:
        """Whether there was one."""
        async with self._writing(alone=True) as connection:
            existed = await _body(connection, (kind, name)) is not None
            await connection.execute(delete(secret).where(_is((kind, name))))
        return existed

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        """Whether this process may renew the secret now; false while another's claim lasts. It need not exist yet."""
        row = {"kind": kind, "name": name, "body": b"", "at_ms": now_ms, "claimed_until_ms": until_ms}
        async with self._writing() as connection:
            statement = upsert(connection, secret).values(row)
            taking = statement.on_conflict_do_update(
                index_elements=_PRIMARY,
                set_={"claimed_until_ms": until_ms},
                where=secret.c.claimed_until_ms <= now_ms,
            )
            return (await connection.execute(taking.returning(secret.c.name))).first() is not None

    async def release(self, kind: str, name: str, until_ms: int | None = None) -> None:
        """End a claim. With `until_ms`, only the claim that was made with it, not a later one of another process."""
        mine = _is((kind, name))
        if until_ms is not None:
            mine = and_(mine, secret.c.claimed_until_ms == until_ms)
        async with self._writing() as connection:
            await connection.execute(delete(secret).where(mine, secret.c.body == b""))
            await connection.execute(update(secret).where(mine).values(claimed_until_ms=0))

    async def change_key(self, change: Callable[[SealedRows], SealedRows]) -> None:
        """In one transaction, while nobody else writes: give `change` everything, and write what it returns.

        It runs in a thread, because it also changes the keys, wherever they are. Rows that it leaves out stay.
        """
        async with self._writing(alone=True) as connection:
            everything = select(secret.c.kind, secret.c.name, secret.c.body).where(secret.c.body != b"")
            found = [SecretRow(*row) for row in await connection.execute(everything.order_by(*_PRIMARY))]
            marks = [row.body for row in found if row[:2] == _KEY]
            rows = tuple(row for row in found if row[:2] != _KEY)
            changed = await asyncio.to_thread(change, SealedRows(marks[0] if marks else None, rows))
            if changed.key_id is not None:
                await _put(connection, SecretRow(*_KEY, changed.key_id))
            await _replace(connection, changed.rows)

    async def settle(self) -> bool:
        """Whether everything written is on the disk for good, so that it survives a power failure."""
        if self._database.path is None:
            return True
        async with self._reading() as connection:
            done = await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return bool(done.scalar_one() == 0)


def _is(key: tuple[str, str]) -> ColumnElement[bool]:
    return and_(secret.c.kind == key[0], secret.c.name == key[1])


async def _body(connection: AsyncConnection, key: tuple[str, str]) -> bytes | None:
    found: bytes | None = (await connection.execute(select(secret.c.body).where(_is(key)))).scalar()
    # An empty one is only a claim.
    return found or None


async def _put(connection: AsyncConnection, row: SecretRow) -> None:
    new = {"body": row.body, "at_ms": time.time_ns() // 1_000_000}
    statement = upsert(connection, secret).values(kind=row.kind, name=row.name, claimed_until_ms=0, **new)
    await connection.execute(statement.on_conflict_do_update(index_elements=_PRIMARY, set_=new))


async def _replace(connection: AsyncConnection, rows: Iterable[SecretRow]) -> None:
    """New bodies for existing rows. They were not written by their owner, so the time stays."""
    for row in rows:
        await connection.execute(update(secret).where(_is(row[:2])).values(body=row.body))
