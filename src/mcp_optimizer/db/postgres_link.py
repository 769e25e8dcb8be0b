"""Announcements among gateways on one PostgreSQL: NOTIFY and LISTEN, on one connection of its own.

The connection is asked for a sign of life every second. Without one it is given up, so a gateway that hears nothing
knows within two seconds. Called by `announcing`; knows no announcement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from mcp_optimizer.db.announced import CHANNEL
from mcp_optimizer.errors import CatalogError

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
_BEAT = 1.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 10.0

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError)


class PostgresLink:
    """Hears others while it is connected."""

    def __init__(self, url: str, heard: Callable[[object], None], reconnected: Callable[[], None]) -> None:
        self._url = url
        self._heard = heard
        self._reconnected = reconnected
        self._connection: Any = None
        self._turn = asyncio.Lock()

    def is_current(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def send(self, bodies: Sequence[str]) -> None:
        connection = self._connection
        if connection is None:
            raise CatalogError("there is no connection")
        try:
            # With the commit, PostgreSQL wakes whoever serves a listener, who hears of it within milliseconds.
            await self._ask(connection, "SELECT pg_notify($1, said) FROM unnest($2::text[]) said", CHANNEL, bodies)
        except _FAILURES as error:
            self._give_up(connection)
            raise CatalogError(str(error) or type(error).__name__) from error

    async def run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                with contextlib.suppress(*_FAILURES):
                    await self._connected()
                    pause = _FIRST_PAUSE
                    await self._beating()
                self._give_up(self._connection)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._give_up(self._connection)

    async def _connected(self) -> None:
        connection = await asyncpg.connect(self._url, timeout=_CONNECT_SECONDS, command_timeout=_ANSWER_SECONDS)
        try:
            await connection.add_listener(CHANNEL, self._on_notice)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._reconnected()

    async def _beating(self) -> None:
        connection = self._connection
        while self._connection is connection:
            await asyncio.sleep(_BEAT)
            await self._ask(connection, "SELECT 1")

    async def _ask(self, connection: Any, query: str, *values: object) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS), self._turn:
            await connection.execute(query, *values) if not values else await connection.fetch(query, *values)

    def _give_up(self, connection: Any) -> None:
        if connection is not None:
            # Without goodbye: nobody may be there to hear it.
            connection.terminate()
        if self._connection is connection:
            self._connection = None

    def _on_notice(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._heard(payload)
