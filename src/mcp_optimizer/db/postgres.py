"""Opens a PostgreSQL database as the catalog: reached, migrated, and never waited for without end.

For many gateways that share one catalog. Everything is in a schema of its own, so that the database may serve other
programs too. Called by `db.database`; the driver is an optional package, and only this module knows it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from mcp_optimizer.db.schema import migrate, write_alone
from mcp_optimizer.db.transactions import reason
from mcp_optimizer.errors import CatalogError

SCHEMA = "mcp_optimizer"

_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 20
_LOCK_SECONDS = 5
_MIGRATION_SECONDS = 15


def prepare(url: str) -> None:
    """Leave a migrated schema in the database. For a thread: libraries are loaded on the way."""
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
    """A few connections, since many gateways share what the server has; each is tried before it is used again."""

    # The driver reads the address itself: whatever PostgreSQL's own tools understand may stand in it (sslmode, several
    # hosts, the folder of a socket), and nothing else knows the password.
    async def connect() -> Any:
        try:
            connection = await asyncpg.connect(url, timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS)
            await connection.execute(f"SET search_path = {SCHEMA}; SET lock_timeout = '{_LOCK_SECONDS}s'")
        except TimeoutError:
            raise ConnectionError(f"no response within {_CONNECT_SECONDS} seconds") from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            raise ConnectionError(str(error)) from None
        return connection

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, pool_size=2, max_overflow=3, pool_pre_ping=True
    )


def shown(url: str) -> str:
    """The address as it may be shown: without user, password and options."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _make_schema(connection: Connection) -> None:
    # Another gateway may be making and migrating it at this moment.
    connection.execute(text(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'"))
    # Looked for first: it may have been made for a user who may not make one.
    if connection.scalar(text(f"SELECT to_regnamespace('{SCHEMA}')")) is None:
        write_alone(connection)
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
