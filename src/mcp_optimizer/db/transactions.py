"""Reads and writes the database: a connection for each access, and failures translated to CatalogError.

The base of every class that accesses tables. Frequent writes to a SQLite file go through `FileWriter`, which switches
to another thread once per transaction: the asynchronous driver switches for every step, which takes twice as long as
the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Dialect, Engine, Table, delete, select, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from mcp_optimizer.db.engines import AsyncConnection
from mcp_optimizer.db.schema import write_alone
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

    from mcp_optimizer.db.database import Database

Written = tuple[str, Sequence[tuple[Any, ...]]]
"""A statement in the driver's own syntax, and its rows."""

_LAST_CHANCE = 1.0
"""Seconds that closing waits for a write in progress."""


class FileWriter:
    """Writes to a SQLite file with one connection in one thread, both made at the first write."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(1, "writes the catalog")
        self._is_closed = False

    async def write(self, statements: Sequence[Written]) -> None:
        """Write all rows or none. If the caller is cancelled, the thread still completes the transaction."""
        if self._is_closed:
            raise CatalogError("the database is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._written, statements)

    async def disconnect(self) -> None:
        """Close the connection; the next write opens another."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.engine.dispose)

    async def close(self) -> None:
        self._is_closed = True
        # If another process has locked the file, a write can take longer than the gateway should take to stop.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CHANCE):
                await self.disconnect()
        self._thread.shutdown(wait=False)

    def _written(self, statements: Sequence[Written]) -> None:
        with self.engine.begin() as connection:
            for statement, rows in statements:
                connection.exec_driver_sql(statement, list(rows))


_T = TypeVar("_T")

_CHUNK = 500
"""Rows or parameters per statement, well under SQLite's limits."""

_FARTHEST = 2**53

_FORGOTTEN_AT_ONCE = 5_000
"""Old rows deleted in one transaction, so other writers get a turn in between."""


class Transactions:
    """Reads and writes one database, each access with its own connection; failures become a CatalogError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def _writing(self, *, alone: bool = False) -> AsyncIterator[AsyncConnection]:
        """One transaction. PostgreSQL allows several writers; one that deletes, or reads first, needs `alone`."""
        with _translated_errors():
            async with self._database.turn, self._connected() as connection, connection.begin():
                if alone:
                    await connection.run_sync(write_alone)
                yield connection

    async def _write_all(self, statements: Sequence[Written]) -> None:
        """Run statements whose results are not needed in one transaction."""
        if (writer := self._database.writer) is not None:
            with _translated_errors():
                async with self._database.turn:
                    await writer.write(statements)
            return
        async with self._writing() as connection:
            for statement, rows in statements:
                await connection.exec_driver_sql(statement, list(rows))

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        # AUTOCOMMIT: a reader takes no lock, so it neither waits for a writer nor blocks one.
        with _translated_errors():
            async with self._connected(isolation_level="AUTOCOMMIT") as connection:
                yield connection

    @asynccontextmanager
    async def _connected(self, **options: str) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as ends:
            connection = await self._database.connected(**options)
            ends.push_async_exit(connection)
            yield connection

    async def probe(self) -> None:
        """Raise a CatalogError unless the database can be read."""
        async with self._reading() as connection:
            await connection.execute(text("SELECT version_num FROM alembic_version"))

    async def _forget(self, table: Table, before: float) -> int:
        """Delete the rows of a table with `id` and `at_ms` that are older than `before`; returns how many."""
        old = select(table.c.id).where(table.c.at_ms < milliseconds(before)).limit(_FORGOTTEN_AT_ONCE)
        forgotten = 0
        while True:
            async with self._writing(alone=True) as connection:
                gone = (await connection.execute(delete(table).where(table.c.id.in_(old)))).rowcount
            forgotten += gone
            if gone < _FORGOTTEN_AT_ONCE:
                return forgotten


def milliseconds(moment: float) -> int:
    """Convert seconds since 1970 to the tables' milliseconds."""
    return round(max(-_FARTHEST, min(moment * 1_000, _FARTHEST)))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise CatalogError for the library's errors, because callers do not know the library."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(reason(error)) from error


def reason(error: Exception) -> str:
    """The database's own message, without the statement."""
    said = getattr(error, "orig", None) or error
    return str(said) or ("no response in time" if isinstance(said, TimeoutError) else type(said).__name__)


def upsert(place: AsyncConnection | Dialect, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that supports ON CONFLICT. Sort rows by key before writing several, so two writers of the same rows
    wait for each other but never deadlock.
    """
    dialect = place if isinstance(place, Dialect) else place.dialect
    if dialect.name != "postgresql":
        return sqlite.insert(table)
    # Imported on demand: takes 2.5 MB that a gateway with a SQLite file does not need.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def chunks(values: Iterable[_T]) -> Iterator[list[_T]]:
    """Divide values into lists that fit one statement."""
    iterator = iter(values)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
