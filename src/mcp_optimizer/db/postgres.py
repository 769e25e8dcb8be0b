"""Opens a PostgreSQL database as the catalog, and announces changes on it with NOTIFY and LISTEN.

For many gateways that share one catalog. All tables are in one schema, so other programs can use the same database. The
link has its own connection, which is tested every second, so a gateway notices within two seconds that it receives no
announcements. Imported by `database` and `announcing` on demand, because the driver is an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from mcp_optimizer.db.engines import AsyncEngine, create_async_engine
from mcp_optimizer.db.gateways import CHANNEL
from mcp_optimizer.db.schema import migrate, write_alone
from mcp_optimizer.db.transactions import reason
from mcp_optimizer.errors import CatalogError

SCHEMA = "mcp_optimizer"

_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 20
_LOCK_SECONDS = 5
_MIGRATION_SECONDS = 15


def prepare(url: str) -> None:
    """Migrate the schema in the database. Run in a thread, because it loads libraries."""
    asyncio.run(_prepare(url))


async def _prepare(url: str) -> None:
    engine = engine_of(url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_make_schema)
            await connection.run_sync(migrate)
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(
            f"Cannot open the catalog {shown(url)}: {reason(error)}. Fix that, or choose another with --database."
        ) from None
    finally:
        await engine.dispose()


def engine_of(url: str) -> AsyncEngine:
    """An engine with few connections, because many gateways share the server; each is tested before reuse."""

    # The driver reads the address itself, so everything PostgreSQL's own tools accept works (sslmode, several hosts,
    # the folder of a socket), and nothing else handles the password.
    async def connect() -> Any:
        try:
            return await _connected(url)
        except TimeoutError:
            raise ConnectionError(f"no response within {_CONNECT_SECONDS} seconds") from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            raise ConnectionError(str(error)) from None

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, pool_size=2, max_overflow=3, pool_pre_ping=True
    )


async def _connected(url: str) -> Any:
    connection = await asyncpg.connect(url, timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS)
    try:
        await connection.execute(f"SET search_path = {SCHEMA}; SET lock_timeout = '{_LOCK_SECONDS}s'")
    except BaseException:
        # Close it even if the caller was cancelled; nothing else holds a reference, and it would stay open.
        connection.terminate()
        raise
    return connection


def shown(url: str) -> str:
    """The address for display: without user, password and options."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _make_schema(connection: Connection) -> None:
    # Another gateway may be creating and migrating the schema now.
    connection.execute(text(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'"))
    # Checked first, because an administrator may have created it for a user without the right to create schemas.
    if connection.scalar(text(f"SELECT to_regnamespace('{SCHEMA}')")) is None:
        write_alone(connection)
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))


logger = logging.getLogger(__name__)

_LINK_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
_BEAT = 1.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 10.0

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError)


class PostgresLink:
    """The link on PostgreSQL: receives announcements while it is connected."""

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
            # At the commit, PostgreSQL wakes the processes that serve listeners, which get it within milliseconds.
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
        connection = await asyncpg.connect(self._url, timeout=_LINK_SECONDS, command_timeout=_ANSWER_SECONDS)
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
            # Terminate without a clean close, because the server may not answer.
            connection.terminate()
        if self._connection is connection:
            self._connection = None

    def _on_notice(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._heard(payload)
