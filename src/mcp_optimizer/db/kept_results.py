"""Reads and writes what a caller comes back for: kept results, with their chunks in order, and tasks.

Written when a result is cut, read by read_result. A large result is written in several transactions, so other writers
do not wait long for the file; it becomes readable with the last one. Writing the same result twice changes nothing, so
an attempt with an unknown outcome can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Dialect, Table, delete, func, insert, select, update

from mcp_optimizer.db.tables import kept_chunk, kept_result, task
from mcp_optimizer.db.transactions import Transactions, Written, upsert
from mcp_optimizer.domain.kept_results import Chunk, KeptResult, KeptTask

# Reads and writes the tasks that clients ask for, which all gateways on one database answer for.

_AT_ONCE = 1_000
"""Tasks deleted when one is added: a million that are over at the same time must not hold up the others."""


class TaskRows(Transactions):
    """The tasks of all callers."""

    async def add(self, kept: KeptTask, most: int) -> bool:
        """Write a task, unless its caller has `most` already. Some tasks whose time is over are deleted first."""
        now = _now()
        # In order, and not inside of the deletion: PostgreSQL then uses the index, whatever it knows of the table.
        over = select(task.c.id).where(task.c.until_ms < now).order_by(task.c.until_ms).limit(_AT_ONCE)
        async with self._writing(alone=True) as connection:
            if ended := (await connection.execute(over)).scalars().all():
                await connection.execute(delete(task).where(task.c.id.in_(ended)))
            count = select(func.count()).select_from(task).where(task.c.caller == kept.caller, task.c.until_ms >= now)
            if (await connection.execute(count)).scalar_one() >= most:
                return False
            await connection.execute(insert(task).values(vars(kept)))
        return True

    async def find(self, task_id: str, caller: str) -> KeptTask | None:
        """The task with this id, if it is this caller's and its time is not over."""
        wanted = select(task).where(task.c.id == task_id, task.c.caller == caller, task.c.until_ms >= _now())
        async with self._reading() as connection:
            row = (await connection.execute(wanted)).mappings().first()
        return None if row is None else KeptTask(**{**row, "is_unchanged": bool(row["is_unchanged"])})


def _now() -> int:
    return round(time.time() * 1_000)


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
