"""How the database is read and written: a connection for each, and failures in the package's own words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mcp_optimizer.db.database import Database
from mcp_optimizer.errors import CatalogError

_T = TypeVar("_T")

_CHUNK = 500
"""Rows or parameters per statement, well under SQLite's limits."""


class Transactions:
    """Reads and writes of one database, each with its own connection; failures are a CatalogError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        with _translated_errors():
            async with self._database.engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        # AUTOCOMMIT: a reader takes no lock, so it neither waits for a writer nor holds one up.
        engine = self._database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with _translated_errors():
            async with engine.connect() as connection:
                yield connection


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Callers know the catalog, not the library under it."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(f"{getattr(error, 'orig', None) or error}") from error


def chunks(values: Iterable[_T]) -> Iterator[list[_T]]:
    """As many values at a time as one statement takes."""
    iterator = iter(values)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
