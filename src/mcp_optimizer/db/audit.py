"""Reads and writes the audit: rows are added, read, and deleted by age, but never changed.

Written in the background and by commands, read by the command `audit` and the dashboard; no request waits for it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Dialect, Row, and_, case, func, insert, or_, select

from mcp_optimizer.db.history import StoredUse
from mcp_optimizer.db.tables import audit
from mcp_optimizer.db.transactions import Transactions, milliseconds
from mcp_optimizer.domain.audit import AuditEntry

_PAGE = 2_000
"""Rows read at once."""

_COLUMNS = tuple(column.name for column in audit.columns if column.name != "id")
_PURPOSE = b"hashes of the audit"


@dataclass(frozen=True)
class AuditQuery:
    """Selects entries. Times are seconds since 1970; `caller` and `tool` are globs."""

    since: float = 0.0
    until: float | None = None
    caller: str = "*"
    tool: str = "*"
    server: str | None = None
    decision: str | None = None
    limit: int = 100
    """Maximum entries; the newest are returned."""
    most_read: int | None = None
    """Maximum rows that are examined; None means no maximum."""

    def matches(self, entry: AuditEntry) -> bool:
        """Whether the globs match an entry; the database compares only roughly."""
        return fnmatch.fnmatchcase(entry.caller, self.caller) and fnmatch.fnmatchcase(entry.tool, self.tool)


class ActiveCaller(NamedTuple):
    """A summary of what one caller did recently."""

    caller: str
    tenant: str
    acts: int
    refused: int
    last_at_ms: int


class StoredAudit(Transactions):
    """The entries in the catalog database."""

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        """Write all entries or none."""
        await self._database.revive()
        await self._write_all([(_insertion(self._database.engine.dialect), [_row(entry) for entry in entries])])

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        """The newest matching entries, oldest first."""
        found: list[AuditEntry] = []
        conditions = list(_conditions(query))
        before: ColumnElement[bool] | None = None
        looked_at = 0
        async with self._reading() as connection:
            # Page by page, so other queries wait for one page only.
            while len(found) < query.limit:
                wanted = conditions if before is None else [*conditions, before]
                newest = select(audit).where(*wanted).order_by(audit.c.at_ms.desc(), audit.c.id.desc()).limit(_PAGE)
                rows = (await connection.execute(newest)).all()
                found += [entry for entry in map(_entry, rows) if query.matches(entry)]
                looked_at += len(rows)
                if len(rows) < _PAGE or (query.most_read is not None and looked_at >= query.most_read):
                    break
                at_ms, last = rows[-1].at_ms, rows[-1].id
                before = or_(audit.c.at_ms < at_ms, and_(audit.c.at_ms == at_ms, audit.c.id < last))
        return found[: query.limit][::-1]

    async def active_callers(self, since: float, most_read: int, most: int) -> list[ActiveCaller]:
        """The recently active callers, most recent first: at most `most`, found in the newest `most_read` rows."""
        recent = (
            select(audit.c.caller, audit.c.tenant, audit.c.decision, audit.c.outcome, audit.c.at_ms)
            .where(audit.c.at_ms >= milliseconds(since))
            .order_by(audit.c.at_ms.desc())
            .limit(most_read)
            .subquery()
        )
        is_refused = or_(recent.c.decision == "deny", recent.c.outcome == "declined")
        refused = func.sum(case((is_refused, 1), else_=0))
        wanted = (
            select(recent.c.caller, recent.c.tenant, func.count(), refused, func.max(recent.c.at_ms))
            .group_by(recent.c.caller, recent.c.tenant)
            .order_by(func.max(recent.c.at_ms).desc(), recent.c.caller, recent.c.tenant)
            .limit(most)
        )
        async with self._reading() as connection:
            return [ActiveCaller(*map(_plain, row)) for row in await connection.execute(wanted)]

    async def forget(self, before: float) -> int:
        """Delete entries older than `before`; returns how many."""
        return await self._forget(audit, before)

    async def key(self) -> bytes:
        """The key of this database's hashes."""
        return hmac.digest(await StoredUse(self._database).key(), _PURPOSE, hashlib.sha256)


def _conditions(query: AuditQuery) -> Iterator[ColumnElement[bool]]:
    yield audit.c.at_ms >= milliseconds(query.since)
    if query.until is not None:
        yield audit.c.at_ms <= milliseconds(query.until)
    if query.server is not None:
        yield audit.c.server == _storable(query.server)
    if query.decision is not None:
        yield audit.c.decision == _storable(query.decision)
    for column, glob in ((audit.c.caller, query.caller), (audit.c.tool, query.tool)):
        if glob != "*":
            yield column.like(_like(glob), escape="\\")


def _like(glob: str) -> str:
    """A LIKE pattern that matches everything the glob matches, and perhaps more."""
    literal, bracket, _ = _storable(glob).partition("[")
    pattern = _escaped(literal).replace("*", "%").replace("?", "_")
    return f"{pattern}%" if bracket else pattern


def _escaped(text: str) -> str:
    return re.sub(r"([%_\\])", r"\\\1", text)


@cache
def _insertion(dialect: Dialect) -> str:
    return str(insert(audit).inline().values(dict.fromkeys(_COLUMNS)).compile(dialect=dialect))


def _row(entry: AuditEntry) -> tuple[Any, ...]:
    """The values in the order of the table's columns, which is that of an entry's fields."""
    names = "".join(entry[1:13])
    if entry.arguments is None and names.isascii() and "\0" not in names:
        # The usual case; checking each text would take as long as writing the row.
        return entry
    return tuple(_storable(value) if isinstance(value, str) else value for value in entry)


def _storable(text: str) -> str:
    """Replace what databases cannot store: half characters and, in PostgreSQL, NUL. Foreign names may have both."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _entry(row: Row[Any]) -> AuditEntry:
    values: Sequence[Any] = row[1:]
    return AuditEntry(*values)


def _plain(value: Any) -> Any:
    """A text unchanged, a number as an int, because PostgreSQL returns sums of integers as decimals."""
    return value if isinstance(value, str) else int(value)
