"""A database that is closed while somebody who was told to stop still holds a connection."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.transactions import Transactions


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


@pytest.mark.filterwarnings("error")
async def test_a_reader_that_is_cancelled_while_it_connects_loses_no_connection(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "catalog.sqlite")
    reader = asyncio.create_task(Transactions(database).probe())

    def cancel(*_: Any) -> None:
        reader.cancel()

    given_back = []
    event.listen(database.engine.sync_engine, "checkout", cancel)
    event.listen(database.engine.sync_engine, "checkin", lambda *_: given_back.append(True))
    await asyncio.wait([reader])
    assert reader.cancelled()
    await database.close()
    assert given_back
    gc.collect()
