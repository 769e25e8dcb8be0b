"""Reads and writes of sign-ins on the dashboard: one that a process made holds in all of them, and ends in all."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, and_, delete, select

from mcp_optimizer.db.shared_tables import sign_in
from mcp_optimizer.db.transactions import Transactions, milliseconds
from mcp_optimizer.domain.sign_in import SignIn, SignInKind


class StoredSignIns(Transactions):
    """The sign-ins that still hold, by the hash of what the browser keeps."""

    async def add(self, digest: bytes, one: SignIn, most: int, now: float) -> None:
        """Remember a sign-in, and at most so many like it: with the same key, or with none."""
        like_it = and_(sign_in.c.kind == one.kind.value, sign_in.c.bound_to == one.bound_to)
        if one.kind is SignInKind.DASHBOARD:
            like_it = sign_in.c.kind == one.kind.value
        newest = select(sign_in.c.digest).where(like_it).order_by(sign_in.c.until_ms.desc()).limit(most - 1)
        row = {
            "digest": digest,
            "kind": one.kind.value,
            "bound_to": one.bound_to,
            "until_ms": milliseconds(one.until),
        }
        async with self._writing(alone=True) as connection:
            await connection.execute(delete(sign_in).where(sign_in.c.until_ms <= milliseconds(now)))
            kept = list((await connection.execute(newest)).scalars())
            await connection.execute(delete(sign_in).where(like_it, sign_in.c.digest.not_in(kept)))
            await connection.execute(sign_in.insert(), row)

    async def find(self, digest: bytes, now: float) -> SignIn | None:
        query = select(sign_in).where(sign_in.c.digest == digest, sign_in.c.until_ms > milliseconds(now))
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _sign_in(row)

    async def end(self, digest: bytes, now: float) -> SignIn | None:
        """Forget one, and return it if it still held. Of several who end the same one, one is given it."""
        gone = delete(sign_in).where(sign_in.c.digest == digest).returning(sign_in)
        async with self._writing() as connection:
            row = (await connection.execute(gone)).first()
        return _sign_in(row) if row is not None and row.until_ms > milliseconds(now) else None


def _sign_in(row: Row[Any]) -> SignIn:
    return SignIn(SignInKind(row.kind), row.until_ms / 1_000, row.bound_to)
