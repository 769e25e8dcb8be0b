"""One gateway at a time does what would otherwise be done by each: an advisory lock of PostgreSQL.

The lock is the connection's: it is free again as soon as the gateway that has it is gone. On a file nobody has to wait.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.transactions import reason
from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.database import Database

_EMBEDDING = 0x6D63706F656D6264
"""The number of the lock; nothing else in the database has it."""


@dataclass(frozen=True)
class Turn:
    """The right to go on, until it is released."""

    connection: AsyncConnection | None = None

    async def release(self) -> None:
        """Never raises: whatever is wrong with the connection frees the lock too."""
        if self.connection is None:
            return
        with contextlib.suppress(SQLAlchemyError, OSError):
            try:
                await self.connection.execute(select(func.pg_advisory_unlock(_EMBEDDING)))
            except (SQLAlchemyError, OSError):
                await self.connection.invalidate()
            await self.connection.close()


async def embedding_turn(database: Database) -> Turn | None:
    """The right to embed tools; None while another gateway has it. Raises CatalogError."""
    if database.engine.dialect.name != "postgresql":
        return Turn()
    try:
        connection = await database.connected(isolation_level="AUTOCOMMIT")
        try:
            is_free = (await connection.execute(select(func.pg_try_advisory_lock(_EMBEDDING)))).scalar_one()
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        if is_free:
            return Turn(connection)
        await connection.close()
    except (SQLAlchemyError, OSError) as error:
        raise CatalogError(reason(error)) from error
    return None
