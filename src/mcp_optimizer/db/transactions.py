"""How the database is read and written: a connection for each, and failures translated to CatalogError.

What is written often to a SQLite file goes through `FileWriter`, a whole transaction for one switch to another thread
and back: the asynchronous driver switches for every step, which takes twice as long as the rest.
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
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.schema import write_alone
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

    from mcp_optimizer.db.database import Database

Written = tuple[str, Sequence[tuple[Any, ...]]]
"""A statement in the driver's own form, and its rows."""

_LAST_CHANCE = 1.0
"""Seconds that closing waits for what is being written."""


class FileWriter:
    """One connection in one thread; both are made when something is first written."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(1, "writes the catalog")
        self._is_closed = False

    async def write(self, statements: Sequence[Written]) -> None:
        """All or nothing. Whoever is cancelled meanwhile leaves no transaction open: the thread goes on to its end."""
        if self._is_closed:
            raise CatalogError("the database is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._written, statements)

    async def disconnect(self) -> None:
        """Close the connection; the next statement makes another."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.engine.dispose)

    async def close(self) -> None:
        self._is_closed = True
        # A file that somebody else has locked can take longer than anybody wants to wait for the end.
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
"""Old rows deleted in one transaction, so that others get their turn in between."""


class Transactions:
    """Reads and writes of one database, each with its own connection; failures are a CatalogError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def _writing(self, *, alone: bool = False) -> AsyncIterator[AsyncConnection]:
        """One transaction. PostgreSQL allows several writers; one that deletes or reads before writing is `alone`."""
        with _translated_errors():
            async with self._database.turn, self._connected() as connection, connection.begin():
                if alone:
                    await connection.run_sync(write_alone)
                yield connection

    async def _write_all(self, statements: Sequence[Written]) -> None:
        """One transaction of statements of which nobody needs to know more than that they are written."""
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
        """Raises a CatalogError unless the database can be read."""
        async with self._reading() as connection:
            await connection.execute(text("SELECT version_num FROM alembic_version"))

    async def _forget(self, table: Table, before: float) -> int:
        """Delete the rows of a table with `id` and `at_ms` that are older than a moment; returns how many."""
        old = select(table.c.id).where(table.c.at_ms < milliseconds(before)).limit(_FORGOTTEN_AT_ONCE)
        forgotten = 0
        while True:
            async with self._writing(alone=True) as connection:
                gone = (await connection.execute(delete(table).where(table.c.id.in_(old)))).rowcount
            forgotten += gone
            if gone < _FORGOTTEN_AT_ONCE:
                return forgotten


def milliseconds(moment: float) -> int:
    """Seconds since 1970, as the tables have them."""
    return round(max(-_FARTHEST, min(moment * 1_000, _FARTHEST)))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Callers know the catalog, not the library under it."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(reason(error)) from error


def reason(error: Exception) -> str:
    """The database's own message, without the statement."""
    said = getattr(error, "orig", None) or error
    return str(said) or ("no response in time" if isinstance(said, TimeoutError) else type(said).__name__)


def upsert(place: AsyncConnection | Dialect, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that may say ON CONFLICT. Writers of several rows sort them by key, so two that write the same rows
    wait for each other but never deadlock.
    """
    dialect = place if isinstance(place, Dialect) else place.dialect
    if dialect.name != "postgresql":
        return sqlite.insert(table)
    # Two and a half megabytes, which a gateway with a file does not need.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def chunks(values: Iterable[_T]) -> Iterator[list[_T]]:
    """As many values at a time as one statement takes."""
    iterator = iter(values)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
