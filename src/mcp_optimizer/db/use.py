"""Reads and writes of what was called after which searches: keyed hashes and counts, in the background."""

from __future__ import annotations

from sqlalchemy import delete, func, select

from mcp_optimizer.db.salt import TERM, known_salt, salt
from mcp_optimizer.db.tables import search_use
from mcp_optimizer.db.transactions import Transactions, chunks, upsert


class StoredUse(Transactions):
    """Counts by term and tool. The key of the hashes is a row of its own: they mean nothing to another catalog."""

    async def key(self) -> bytes:
        """The key alone, made at the first time. Reads first, because a reader need not wait for a writer."""
        async with self._reading() as connection:
            known = await known_salt(connection)
        if known is not None:
            return known
        async with self._writing() as connection:
            return await salt(connection)

    async def read(self) -> tuple[bytes, dict[tuple[str, str], int]]:
        """The key, made at the first time, and all counts."""
        table = search_use
        async with self._writing() as connection:
            key = await salt(connection)
        async with self._reading() as connection:
            rows = await connection.execute(select(table.c.term, table.c.tool, table.c.count))
            counts = {(term, tool): count for term, tool, count in rows if term != TERM}
        return key, counts

    async def write(self, counts: dict[tuple[str, str], int], most: int) -> None:
        """These counts as they are now; beyond `most` pairs, those that came up once are forgotten."""
        table = search_use
        rows = [{"term": term, "tool": tool, "count": count} for (term, tool), count in sorted(counts.items())]
        async with self._writing() as connection:
            for chunk in chunks(rows):
                statement = upsert(connection, table)
                changing = statement.on_conflict_do_update(
                    index_elements=["term", "tool"], set_={"count": statement.excluded.count}
                )
                await connection.execute(changing, chunk)
            if ((await connection.execute(select(func.count()).select_from(table))).scalar() or 0) > most:
                await connection.execute(delete(table).where(table.c.count == 1))
