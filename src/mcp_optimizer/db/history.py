"""Reads and writes the history: events, in the order in which they happened.

Written by the recorder in the background, read by reports; no request waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Dialect, Row, func, insert, select, true

from mcp_optimizer.db.tables import event
from mcp_optimizer.db.transactions import Transactions, milliseconds
from mcp_optimizer.domain.events import Event, EventKind, Outcome, ToolKey

if TYPE_CHECKING:
    from mcp_optimizer.db.database import Database

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
