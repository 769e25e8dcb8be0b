"""Writes a whole transaction to a SQLite file for one switch to another thread and back.

The asynchronous driver switches for every step, ten times for two statements, which takes twice as long as the rest.
Used by `transactions` for what is written often; the caller sees to it that nobody else is writing. Knows no table.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine

from mcp_optimizer.errors import CatalogError

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
