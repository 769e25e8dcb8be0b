"""What is written often goes to a SQLite file in one go: all or nothing, even if somebody is cancelled."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from mcp_optimizer.db.database import Database, open_database
from mcp_optimizer.db.history import History
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.domain.kept_results import Chunk, KeptResult
from mcp_optimizer.errors import CatalogError
from tests.waiting import until

RESULT = KeptResult("r1", "me", "rows", 2, 100, 10)
CHUNK = Chunk(0, 0, b"\x05\0\0\0\x05\0\0\0", b"body")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await open_database(path)
    yield database
    await database.close()


def asked(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


async def test_a_result_is_written_without_the_driver_that_switches_threads_for_every_step(database: Database) -> None:
    made: list[Any] = []
    event.listen(database.engine.sync_engine, "connect", lambda connection, _record: made.append(connection))
    await KeptResults(database).write(RESULT, [CHUNK])
    assert made == []
    assert await KeptResults(database).find("r1", "me") == RESULT
    assert await KeptResults(database).chunk("r1", 1) == CHUNK


async def test_a_second_statement_that_fails_takes_the_first_with_it(database: Database, path: Path) -> None:
    nothing: Any = None
    broken = replace(CHUNK, block=nothing)
    with pytest.raises(CatalogError, match="NOT NULL"):
        await KeptResults(database).write(RESULT, [broken])
    assert asked(path, "SELECT id FROM kept_result") == []
    await KeptResults(database).write(RESULT, [CHUNK])
    assert asked(path, "SELECT id FROM kept_result") == [("r1",)]


async def test_whoever_is_cancelled_while_a_file_is_locked_leaves_no_transaction_open(
    database: Database, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(KeptResults(database).write(RESULT, [CHUNK]))
        await until(lambda: any(thread.name.startswith("writes the catalog") for thread in threading.enumerate()))
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        other.execute("ROLLBACK")
    # One after the other, so the cancelled one is over.
    await History(database).write([Event(at=1.0, kind=EventKind.CALL, session="s")])
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM event").fetchall() == [(1,)]
        assert other.execute("SELECT id FROM kept_result").fetchall() == [("r1",)]


async def test_a_file_that_was_deleted_is_made_again_and_written(database: Database, path: Path) -> None:
    await KeptResults(database).write(RESULT, [CHUNK])
    for each in path.parent.iterdir():
        each.unlink()
    await History(database).write([Event(at=1.0, kind=EventKind.CALL, session="s")])
    assert asked(path, "SELECT count(*) FROM event") == [(1,)]
    assert asked(path, "SELECT count(*) FROM kept_result") == [(0,)]


async def test_a_database_that_is_closed_says_so(path: Path) -> None:
    database = await open_database(path)
    await database.close()
    with pytest.raises(CatalogError, match="closed"):
        await KeptResults(database).write(RESULT, [CHUNK])
