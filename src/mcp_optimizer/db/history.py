"""Reads and writes of the history: events, in the order in which they happened.

Written by the recorder in the background, read by reports; no request waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Dialect, Row, func, insert, select

from mcp_optimizer.db.tables import event
from mcp_optimizer.db.transactions import Transactions, milliseconds
from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey

_PAGE = 2_000
"""Events read at once."""


class History(Transactions):
    """The events in the catalog database."""

    async def write(self, events: Sequence[Event]) -> None:
        """Writes all or none."""
        await self._database.revive()
        async with self._writing() as connection:
            # Bound by hand: the library's own binding takes three times as long per row.
            await connection.exec_driver_sql(_insertion(connection.dialect), [_row(one) for one in events])

    async def read(self, since: float = 0.0, newest: int | None = None) -> list[Event]:
        """Events since a moment, oldest first; only the newest, if a number is given."""
        found: list[Event] = []
        before: int | None = None
        wanted = newest
        async with self._reading() as connection:
            # Page by page, so other queries wait for one page, not for all.
            while wanted is None or wanted > 0:
                query = select(event).where(event.c.at_ms >= milliseconds(since))
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
            .group_by(event.c.server, event.c.tool)
        )
        async with self._reading() as connection:
            return {(row[0], row[1]): row[2] for row in await connection.execute(query)}

    async def forget(self, before: float) -> int:
        """Delete events older than a moment; returns how many."""
        return await self._forget(event, before)


@cache
def _insertion(dialect: Dialect) -> str:
    return str(insert(event).inline().values(dict.fromkeys(_COLUMNS)).compile(dialect=dialect))


_COLUMNS = tuple(column.name for column in event.columns if column.name != "id")


def _row(one: Event) -> tuple[Any, ...]:
    """In the order of the table's columns, which is that of an event's fields."""
    found = json.dumps(one.found, separators=(",", ":")) if one.found else ""
    # PostgreSQL texts cannot contain NUL, and a hostile server may have one in a name.
    names = (name.replace("\0", "\ufffd") for name in one[2:6])
    caller = one.caller.replace("\0", "\ufffd")
    return (milliseconds(one.at), one.kind.value, *names, *one[6:12], one.outcome.value, found, caller)


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
    )
