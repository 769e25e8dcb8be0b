"""Reads and writes of the shapes of results, by the hash of the tool's definition, in the background."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import delete, func, select

from mcp_optimizer.db.tables import result_shape
from mcp_optimizer.db.transactions import Transactions, chunks, upsert


class StoredShapes(Transactions):
    """How many results each shape was learned from, and the shape as text."""

    async def read(self, most: int) -> dict[str, tuple[int, str]]:
        """The newest shapes, oldest first."""
        table = result_shape
        newest = select(table.c.definition_hash, table.c.results, table.c.shape).order_by(table.c.at_ms.desc())
        async with self._reading() as connection:
            rows = (await connection.execute(newest.limit(most))).all()
        return {row.definition_hash: (row.results, row.shape) for row in reversed(rows)}

    async def write(self, shapes: Mapping[str, tuple[int, str]], most: int) -> None:
        """These shapes as they are now; beyond `most`, the oldest are forgotten."""
        table, now = result_shape, time.time_ns() // 1_000_000
        rows = [
            {"definition_hash": key, "results": results, "shape": shape, "at_ms": now}
            for key, (results, shape) in sorted(shapes.items())
        ]
        async with self._writing(alone=True) as connection:
            for chunk in chunks(rows):
                statement = upsert(connection, table)
                new = {column: statement.excluded[column] for column in ("results", "shape", "at_ms")}
                changing = statement.on_conflict_do_update(index_elements=["definition_hash"], set_=new)
                await connection.execute(changing, chunk)
            if ((await connection.execute(select(func.count()).select_from(table))).scalar() or 0) > most:
                kept = select(table.c.definition_hash).order_by(table.c.at_ms.desc(), table.c.definition_hash)
                await connection.execute(delete(table).where(table.c.definition_hash.not_in(kept.limit(most))))
