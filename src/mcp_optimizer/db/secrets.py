"""Reads and writes secrets, by kind and name. They come encrypted: this module can read none and knows no key.

One row has the id of the key with which all others are encrypted. Every write names the key it used, and a row
encrypted with any other key is refused, so a process that missed a change of the key cannot write a row that no process
can decrypt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, select, update

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.tables import secret
from mcp_optimizer.db.transactions import Transactions, upsert

_KEY = ("key", "current")
_PRIMARY = ["kind", "name"]


class SecretRow(NamedTuple):
    """A secret as stored, with its encrypted body."""

    kind: str
    name: str
    body: bytes


class SealedRows(NamedTuple):
    """All secrets, and the id of the key with which they are encrypted; None before the first secret."""

    key_id: bytes | None
    rows: tuple[SecretRow, ...]


class StoredSecrets(Transactions):
    """Encrypted secrets by kind and name, claims to renew them, and the id of their key."""

    async def read(self, kind: str, name: str) -> bytes | None:
        async with self._reading() as connection:
            return await _body(connection, (kind, name))

    async def names(self, kind: str, beginning: str = "") -> dict[str, int]:
        """The names of the secrets of a kind that begin like this, and when each was written, in milliseconds."""
        wanted = select(secret.c.name, secret.c.at_ms).where(secret.c.kind == kind, secret.c.body != b"")
        if beginning:
            wanted = wanted.where(secret.c.name.startswith(beginning, autoescape=True))
        async with self._reading() as connection:
            rows = await connection.execute(wanted.order_by(secret.c.name))
            return {row.name: row.at_ms for row in rows}

    async def key_id(self) -> bytes | None:
        """The id of the key with which all secrets are encrypted."""
        async with self._reading() as connection:
            return await _body(connection, _KEY)

    async def write(self, kind: str, name: str, body: bytes, key_id: bytes) -> bool:
        """Write a secret; false, and nothing is written, if `key_id` is not the current key. A claim on it stays."""
        async with self._writing(alone=True) as connection:
            if await _body(connection, _KEY) != key_id:
                return False
            await _put(connection, SecretRow(kind, name, body))
        return True

    async def delete(self, kind: str, name: str) -> bool:
        """Delete a secret; returns whether there was one."""
        async with self._writing(alone=True) as connection:
            existed = await _body(connection, (kind, name)) is not None
            await connection.execute(delete(secret).where(_is((kind, name))))
        return existed

    async def drop_old(self, kind: str, before_ms: int) -> None:
        """Delete the secrets of a kind that were written before this time, and claims that were made before it."""
        async with self._writing() as connection:
            await connection.execute(delete(secret).where(secret.c.kind == kind, secret.c.at_ms < before_ms))

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        """Claim the right to renew a secret, which need not exist yet; false while another process's claim lasts."""
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
        """End a claim. With `until_ms`, only a claim made with that time, not a later one of another process."""
        mine = _is((kind, name))
        if until_ms is not None:
            mine = and_(mine, secret.c.claimed_until_ms == until_ms)
        async with self._writing() as connection:
            await connection.execute(delete(secret).where(mine, secret.c.body == b""))
            await connection.execute(update(secret).where(mine).values(claimed_until_ms=0))

    async def change_key(self, change: Callable[[SealedRows], SealedRows]) -> None:
        """In one transaction, as the only writer: call `change` with all secrets and write those that it returns.

        `change` runs in a thread, because it also changes the keys, wherever they are kept. Rows that it does not
        return stay unchanged.
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
        """Write everything from SQLite's log into the file, to survive a power failure; returns whether that worked."""
        if self._database.path is None:
            return True
        async with self._reading() as connection:
            done = await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return bool(done.scalar_one() == 0)


def _is(key: tuple[str, str]) -> ColumnElement[bool]:
    return and_(secret.c.kind == key[0], secret.c.name == key[1])


async def _body(connection: AsyncConnection, key: tuple[str, str]) -> bytes | None:
    found: bytes | None = (await connection.execute(select(secret.c.body).where(_is(key)))).scalar()
    # A row with an empty body is only a claim.
    return found or None


async def _put(connection: AsyncConnection, row: SecretRow) -> None:
    new = {"body": row.body, "at_ms": time.time_ns() // 1_000_000}
    statement = upsert(connection, secret).values(kind=row.kind, name=row.name, claimed_until_ms=0, **new)
    await connection.execute(statement.on_conflict_do_update(index_elements=_PRIMARY, set_=new))


async def _replace(connection: AsyncConnection, rows: Iterable[SecretRow]) -> None:
    """Replace the bodies of existing rows. Their time stays, because it is when the owner wrote the secret."""
    for row in rows:
        await connection.execute(update(secret).where(_is(row[:2])).values(body=row.body))
