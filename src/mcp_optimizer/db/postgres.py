"""Opens a PostgreSQL database as the catalog: connects and migrates, with a bounded wait for each step.

For many gateways that share one catalog. All tables are in one schema, so other programs can use the same database.
Called by `db.database`; the driver is an optional package that only this module knows.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import AsyncEngine, create_async_engine

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
    """A few connections, because many gateways share the server; each is tested before reuse."""

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
        # Also when whoever wanted it is cancelled: nobody else knows of it, and it would stay open.
        connection.terminate()
        raise
    return connection


def shown(url: str) -> str:
    """The address for display: without user, password and options."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _make_schema(connection: Connection) -> None:
    # Another gateway may be creating and migrating it at this moment.
    connection.execute(text(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'"))
    # Checked first: it may have been created for a user who may not create one.
    if connection.scalar(text(f"SELECT to_regnamespace('{SCHEMA}')")) is None:
        write_alone(connection)
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
