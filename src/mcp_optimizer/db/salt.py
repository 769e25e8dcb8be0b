"""A random key that belongs to one database: what is hashed with it means nothing to another. Called by its queries."""

from __future__ import annotations

import secrets

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from mcp_optimizer.db.schema import write_alone
from mcp_optimizer.db.tables import search_use

TERM = "salt"
"""The term of the row whose tool is the key."""

_KNOWN = select(search_use.c.tool).where(search_use.c.term == TERM).order_by(search_use.c.tool).limit(1)


async def known_salt(connection: AsyncConnection) -> bytes | None:
    """The key, if it was made already."""
    found: str | None = (await connection.execute(_KNOWN)).scalar()
    return None if found is None else bytes.fromhex(found)


async def salt(connection: AsyncConnection) -> bytes:
    """The key, made at the first time; needs a transaction that may write."""
    if (known := await known_salt(connection)) is not None:
        return known
    # Two gateways that made one at the same time would each go on with their own.
    await connection.run_sync(write_alone)
    if (known := await known_salt(connection)) is not None:
        return known
    made = secrets.token_bytes(16)
    await connection.execute(insert(search_use), [{"term": TERM, "tool": made.hex(), "count": 0}])
    return made
