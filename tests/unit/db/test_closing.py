"""A database that is closed while somebody who was told to stop still holds a connection."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from mcp_optimizer.db.database import open_database


@pytest.mark.filterwarnings("error")
async def test_closing_waits_for_the_connection_of_a_reader_that_was_cancelled(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "catalog.sqlite")
    has_it = asyncio.Event()

    async def read() -> None:
        async with database.engine.connect():
            has_it.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.05)

    reader = asyncio.create_task(read())
    await has_it.wait()
    reader.cancel()
    await database.close()
    assert reader.done()
    gc.collect()
