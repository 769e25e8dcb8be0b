"""Reads and writes kept results: the caller that may read each, and its chunks in order.

Written when a result is cut, read by read_result. A large result is written in several transactions, so other writers
do not wait long for the file; it becomes readable with the last one. Writing the same result twice changes nothing, so
an attempt with an unknown outcome can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Dialect, Table, delete, select, update

from mcp_optimizer.db.tables import kept_chunk, kept_result
from mcp_optimizer.db.transactions import Transactions, Written, upsert
from mcp_optimizer.domain.kept_results import Chunk, KeptResult


class KeptResults(Transactions):
    """The kept results in the catalog database."""

    async def write(self, result: KeptResult, chunks: Sequence[Chunk]) -> None:
        """Write a complete result in one transaction."""
        await self._database.revive()
        size = sum(chunk.size for chunk in chunks)
        about = {"pieces": result.pieces, "stored_bytes": size}
        await self._write_all([self._row(result, about), *self._chunks(result.id, chunks)])

    async def begin(self, result: KeptResult) -> None:
        """Register a result whose chunks follow; it cannot be read yet."""
        await self._database.revive()
        await self._write_all([self._row(result, {"pieces": 0, "stored_bytes": 0})])

    async def add(self, result_id: str, chunks: Sequence[Chunk]) -> None:
        await self._write_all(self._chunks(result_id, chunks))

    async def finish(self, result: KeptResult, stored_bytes: int) -> None:
        """Make a result readable, after all its chunks are written."""
        values = {"pieces": result.pieces, "stored_bytes": stored_bytes}
        async with self._writing() as connection:
            await connection.execute(update(kept_result).where(kept_result.c.id == result.id).values(**values))

    async def find(self, result_id: str, caller: str) -> KeptResult | None:
        """Find a result by its id, if it belongs to this caller."""
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
        """Delete expired results, then older ones until the rest fits, at most 900 per call; never the newest."""
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

    def _row(self, result: KeptResult, written: dict[str, Any]) -> Written:
        return self._rows(kept_result, [{**vars(result), **written, "at_ms": _now()}])

    def _chunks(self, result_id: str, chunks: Sequence[Chunk]) -> list[Written]:
        return [self._rows(kept_chunk, [{"result_id": result_id, **vars(chunk)} for chunk in chunks])] if chunks else []

    def _rows(self, table: Table, rows: Sequence[dict[str, Any]]) -> Written:
        # Values are bound here, because with SQLAlchemy's own binding a transaction takes half as long again.
        return _insertion(self._database.engine.dialect, table), [
            tuple(row[column.name] for column in table.columns) for row in rows
        ]


@cache
def _insertion(dialect: Dialect, table: Table) -> str:
    values = dict.fromkeys(column.name for column in table.columns)
    return str(upsert(dialect, table).values(values).on_conflict_do_nothing().compile(dialect=dialect))


def _now() -> int:
    return round(time.time() * 1_000)
