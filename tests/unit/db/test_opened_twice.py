"""One process opens the catalog's file several times, as a gateway with stored secrets does, while others come and go:
its locks hold all the time, although the system gives up those of a process as soon as it closes the file once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mcp_optimizer.db.database import Database, open_database

PASSING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM oldest_reader").fetchall()
connection.close()
"""

pytestmark = pytest.mark.process


async def others_come_and_go(path: Path) -> None:
    """SQLite deletes the log when the last connection of all processes is closed."""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", PASSING, str(path)], check=True)


async def write(database: Database, name: str) -> None:
    assert database.writer is not None
    await database.writer.write([("INSERT INTO oldest_reader (revision) VALUES (?)", [(name,)])])


def written(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {row[0] for row in connection.execute("SELECT revision FROM oldest_reader")}


async def test_a_file_that_is_opened_again_stays_locked_for_whoever_had_it_open(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    first = await open_database(path)
    await write(first, "before")
    log = Path(f"{path}-wal")
    inode = log.stat().st_ino
    second = await open_database(path)
    await second.close()
    await others_come_and_go(path)
    assert log.stat().st_ino == inode
    await write(first, "after")
    assert {"before", "after"} <= written(path)
    await first.close()
    assert {"before", "after"} <= written(path)
