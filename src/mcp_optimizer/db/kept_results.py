"""Reads and writes of kept results: who may read them, and their chunks in order.

Written beside a cut result, read by read_result. A large result is written in several transactions, so nobody waits
long for the file; it becomes readable with the last one. Writing the same result twice changes nothing, so an attempt
of which nobody knows how it ended can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.tables import kept_chunk, kept_result
from mcp_optimizer.db.transactions import Transactions, upsert
from mcp_optimizer.domain.kept_results import Chunk, KeptResult


class KeptResults(Transactions):
    """The kept results in the catalog database."""

    async def write(self, result: KeptResult, chunks: Sequence[Chunk]) -> None:
        """A complete result in one transaction."""
        await self._database.revive()
        size = sum(chunk.size for chunk in chunks)
        async with self._writing() as connection:
            await _put(connection, result, {"pieces": result.pieces, "stored_bytes": size})
            await _put_chunks(connection, result.id, chunks)

    async def begin(self, result: KeptResult) -> None:
        """Register a result; it cannot be read yet."""
        await self._database.revive()
        async with self._writing() as connection:
            await _put(connection, result, {"pieces": 0, "stored_bytes": 0})

    async def add(self, result_id: str, chunks: Sequence[Chunk]) -> None:
        async with self._writing() as connection:
            await _put_chunks(connection, result_id, chunks)

    async def finish(self, result: KeptResult, stored_bytes: int) -> None:
        """All chunks are written: the result can be read."""
        values = {"pieces": result.pieces, "stored_bytes": stored_bytes}
        async with self._writing() as connection:
            await connection.execute(update(kept_result).where(kept_result.c.id == result.id).values(**values))

    async def find(self, result_id: str, caller: str) -> KeptResult | None:
        """A result by its id, if it belongs to this caller."""
        query = select(kept_result).where(
            kept_result.c.id == result_id, kept_result.c.caller == caller, kept_result.c.pieces > 0
        )
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return KeptResult(row.id, row.caller, row.unit, row.pieces, row.max_tokens, row.bytes)

    async def chunk(self, result_id: str, piece: int) -> Chunk | None:
        """The chunk that contains a piece."""
        columns = kept_chunk.c
        query = (
            select(columns.block, columns.first, columns.lengths, columns.body)
            .where(columns.result_id == result_id, columns.first <= piece)
            .order_by(columns.first.desc())
            .limit(1)
        )
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else Chunk(row.block, row.first, row.lengths, row.body)

    async def forget(self, older_than_seconds: float, most_bytes: int) -> None:
        """Delete expired results, then the oldest until the rest fits; never the newest."""
        oldest = _now() - round(older_than_seconds * 1_000)
        async with self._writing(alone=True) as connection:
            await connection.execute(delete(kept_result).where(kept_result.c.at_ms < oldest))
            query = select(kept_result.c.id, kept_result.c.stored_bytes).order_by(kept_result.c.at_ms.desc())
            total, gone = 0, []
            for number, (result_id, size) in enumerate((await connection.execute(query)).all()):
                total += size
                if number and total > most_bytes:
                    gone.append(result_id)
            if gone:
                await connection.execute(delete(kept_result).where(kept_result.c.id.in_(gone[:900])))


async def _put(connection: AsyncConnection, result: KeptResult, written: dict[str, Any]) -> None:
    values = {**vars(result), **written, "at_ms": _now()}
    await connection.execute(upsert(connection, kept_result).on_conflict_do_nothing(), values)


async def _put_chunks(connection: AsyncConnection, result_id: str, chunks: Sequence[Chunk]) -> None:
    rows = [{"result_id": result_id, **vars(chunk)} for chunk in chunks]
    if rows:
        await connection.execute(upsert(connection, kept_chunk).on_conflict_do_nothing(), rows)


def _now() -> int:
    return round(time.time() * 1_000)
