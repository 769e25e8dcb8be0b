"""The key of a database: one for all gateways, also for those that make it at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcp_optimizer.db.audit import StoredAudit
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.history import StoredUse

GATEWAYS = 6


async def test_gateways_that_first_start_together_have_the_same_key(place: Path | str) -> None:
    databases = [await open_database(place) for _ in range(GATEWAYS)]
    # Each has a connection, so that nobody is ahead of the others.
    await asyncio.gather(*(StoredUse(database).probe() for database in databases))
    made = await asyncio.gather(*(StoredUse(database).key() for database in databases))
    audits = await asyncio.gather(*(StoredAudit(database).key() for database in databases))
    await asyncio.gather(*(database.close() for database in databases))
    assert len(set(made)) == len(set(audits)) == 1
