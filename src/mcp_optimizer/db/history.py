"""Reads and writes the history: events, in the order in which they happened, and how tools are used.

Written by the recorder in the background, read by reports; no request waits for it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Dialect, Row, delete, func, insert, select, true

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.schema import write_alone
from mcp_optimizer.db.tables import event, promoted_tool, search_use, shared_uses
from mcp_optimizer.db.transactions import Transactions, chunks, milliseconds, upsert
from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey

if TYPE_CHECKING:
    from mcp_optimizer.db.database import Database


# Reads and writes how tools are used: after which searches, how often, and which are listed since a use. Called in
# the background; no request waits for it. Terms and tools of searches are stored as hashes with a key that belongs to
# one database, so they mean nothing in another.

TERM = "salt"
"""The term of the row whose `tool` is the key of the hashes."""

_KNOWN = select(search_use.c.tool).where(search_use.c.term == TERM).order_by(search_use.c.tool).limit(1)


async def known_salt(connection: AsyncConnection) -> bytes | None:
    """The key, if it exists."""
    found: str | None = (await connection.execute(_KNOWN)).scalar()
    return None if found is None else bytes.fromhex(found)


async def salt(connection: AsyncConnection) -> bytes:
    """The key, made on first use; needs a writing transaction."""
    if (known := await known_salt(connection)) is not None:
        return known
    # Otherwise two gateways could each make a key at the same time and continue with their own.
    await connection.run_sync(write_alone)
    if (known := await known_salt(connection)) is not None:
        return known
    made = secrets.token_bytes(16)
    await connection.execute(insert(search_use), [{"term": TERM, "tool": made.hex(), "count": 0}])
    return made


class StoredUse(Transactions):
    """Counts by the hashes of a term and a tool. The key of the hashes is a row of the same table."""

    async def key(self) -> bytes:
        """The key alone, made on first use. Reads first, because a reader need not wait for a writer."""
        async with self._reading() as connection:
            known = await known_salt(connection)
        if known is not None:
            return known
        async with self._writing() as connection:
            return await salt(connection)

    async def read(self) -> tuple[bytes, dict[tuple[str, str], int]]:
        """The key, made on first use, and all counts."""
        table = search_use
        async with self._writing() as connection:
            key = await salt(connection)
        async with self._reading() as connection:
            rows = await connection.execute(select(table.c.term, table.c.tool, table.c.count))
            counts = {(term, tool): count for term, tool, count in rows if term != TERM}
        return key, counts

    async def write(self, counts: dict[tuple[str, str], int], most: int) -> None:
        """Insert or replace these counts; beyond `most` pairs, all pairs counted only once are deleted."""
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


_OLDEST_MS = 3_600_000
"""Milliseconds after which a gateway that starts counts the calls again."""


class SharedUses(Transactions):
    """The numbers of calls by tool that all gateways of a configuration use."""

    async def read(self, configuration: str) -> dict[ToolKey, int] | None:
        """The counts; None if no gateway has counted yet."""
        known = await self._row(configuration)
        return None if known is None else known[1]

    async def agreed(
        self, configuration: str, count: Callable[[], Awaitable[Mapping[ToolKey, int]]]
    ) -> tuple[dict[ToolKey, int], bool]:
        """The counts, and whether they were counted now, because there were none or they were old."""
        known = await self._row(configuration)
        now = time.time_ns() // 1_000_000
        if known is not None and now - known[0] < _OLDEST_MS:
            return known[1], False
        counts = dict(await count())
        if not counts:
            return counts, False
        new = {"at_ms": now, "counts": json.dumps([[*key, number] for key, number in sorted(counts.items())])}
        async with self._writing() as connection:
            adding = upsert(connection, shared_uses).values(configuration=configuration, **new)
            # If several gateways start together, the first one's counts are stored, and the others use them.
            still_old = shared_uses.c.at_ms <= now - _OLDEST_MS
            await connection.execute(
                adding.on_conflict_do_update(index_elements=["configuration"], set_=new, where=still_old)
            )
        return await self.read(configuration) or counts, True

    async def _row(self, configuration: str) -> tuple[int, dict[ToolKey, int]] | None:
        query = select(shared_uses).where(shared_uses.c.configuration == configuration)
        async with self._reading() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return row.at_ms, {(server, tool): number for server, tool, number in json.loads(row.counts)}


_KEPT_MS = 7 * 24 * 3_600_000
"""Milliseconds for which a promotion lasts; after a week, the counts of calls decide the tool's place."""


class PromotedTools(Transactions):
    """The promotions of all gateways, so each gateway lists the same tools in the same order."""

    async def read(self, configuration: str, most: int) -> list[str]:
        """The names of promoted tools, earliest first."""
        table = promoted_tool
        query = select(table.c.tool).where(table.c.configuration == configuration)
        async with self._reading() as connection:
            rows = await connection.execute(query.order_by(table.c.at_ms, table.c.tool).limit(most))
            return [row.tool for row in rows]

    async def add(self, configuration: str, tools: Sequence[str]) -> None:
        """Promote tools; those already promoted keep their place."""
        now = time.time_ns() // 1_000_000
        rows = [{"configuration": configuration, "tool": tool, "at_ms": now} for tool in sorted(set(tools))]
        async with self._writing() as connection:
            # Old promotions are deleted here and not when reading, so all gateways drop them at the same time.
            await connection.execute(delete(promoted_tool).where(promoted_tool.c.at_ms < now - _KEPT_MS))
            await connection.execute(upsert(connection, promoted_tool).on_conflict_do_nothing(), rows)


_PAGE = 2_000
"""Events read at once."""


class History(Transactions):
    """The events in the catalog database, which gateways with different server files may share.

    Reads the events of one configuration and those that name none; without a configuration, all events.
    """

    def __init__(self, database: Database, configuration: str | None = None) -> None:
        super().__init__(database)
        self._configuration = configuration

    async def write(self, events: Sequence[Event]) -> None:
        """Write all events or none."""
        await self._database.revive()
        # Values are bound here, because SQLAlchemy's own binding takes three times as long per row.
        await self._write_all([(_insertion(self._database.engine.dialect), [_row(one) for one in events])])

    async def read(self, since: float = 0.0, newest: int | None = None) -> list[Event]:
        """Events since `since`, oldest first; with `newest`, only that many of the newest."""
        found: list[Event] = []
        before: int | None = None
        wanted = newest
        async with self._reading() as connection:
            # Page by page, so other queries wait for one page only.
            while wanted is None or wanted > 0:
                query = select(event).where(event.c.at_ms >= milliseconds(since), self._is_own())
                query = query if before is None else query.where(event.c.id < before)
                most = _PAGE if wanted is None else min(_PAGE, wanted)
                rows = (await connection.execute(query.order_by(event.c.id.desc()).limit(most))).all()
                found.extend(map(_event, rows))
                if len(rows) < most:
                    break
                before = rows[-1].id
                wanted = None if wanted is None else wanted - len(rows)
        return found[::-1]

    async def call_counts(self, since: float = 0.0) -> dict[ToolKey, int]:
        """How often each tool was called."""
        query = (
            select(event.c.server, event.c.tool, func.count())
            .where(event.c.kind == EventKind.CALL.value, event.c.tool != "", event.c.at_ms >= milliseconds(since))
            .where(self._is_own())
            .group_by(event.c.server, event.c.tool)
        )
        async with self._reading() as connection:
            return {(row[0], row[1]): row[2] for row in await connection.execute(query)}

    async def others(self, since: float = 0.0) -> int:
        """The number of events of other configurations."""
        query = select(func.count()).where(event.c.at_ms >= milliseconds(since), ~self._is_own())
        async with self._reading() as connection:
            return int((await connection.execute(query)).scalar() or 0)

    def _is_own(self) -> ColumnElement[bool]:
        return true() if self._configuration is None else event.c.configuration.in_([self._configuration, ""])

    async def forget(self, before: float) -> int:
        """Delete events older than `before`; returns how many."""
        return await self._forget(event, before)


@cache
def _insertion(dialect: Dialect) -> str:
    return str(insert(event).inline().values(dict.fromkeys(_COLUMNS)).compile(dialect=dialect))


_COLUMNS = tuple(column.name for column in event.columns if column.name != "id")


def _row(one: Event) -> tuple[Any, ...]:
    """The values in the order of the table's columns, which is that of an event's fields."""
    names: tuple[str, ...] = one[2:6]
    caller = one.caller
    if "\0" in "".join(names) or "\0" in caller:
        # PostgreSQL texts cannot contain NUL, and a hostile server may put one into a name.
        names, caller = tuple(map(_without_nul, names)), _without_nul(caller)
    found = json.dumps(one.found, separators=(",", ":")) if one.found else ""
    return (
        milliseconds(one.at),
        str(one.kind),
        *names,
        *one[6:12],
        str(one.outcome),
        found,
        caller,
        one.configuration,
    )


def _without_nul(name: str) -> str:
    return name.replace("\0", "\ufffd")


def _event(row: Row[Any]) -> Event:
    return Event(
        at=row.at_ms / 1_000,
        kind=EventKind(row.kind),
        session=row.session,
        client=row.client,
        server=row.server,
        tool=row.tool,
        tokens=row.tokens,
        full_tokens=row.full_tokens,
        baseline_tokens=row.baseline_tokens,
        milliseconds=row.milliseconds,
        cached=row.cached,
        truncated=row.truncated,
        outcome=Outcome(row.outcome),
        found=tuple((server, tool) for server, tool in json.loads(row.found)) if row.found else (),
        caller=row.caller,
        configuration=row.configuration,
    )
