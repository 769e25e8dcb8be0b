"""The gateway's database: nothing waits for one that is down, and it is used as soon as it is available."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.domain.kept_results import KeptResult
from mcp_optimizer.errors import CatalogError
from tests.conftest import WriteServers, plain_server
from tests.waiting import until


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A path that cannot be used until the file in its way is deleted."""
    (tmp_path / "folder").write_text("in the way")
    return tmp_path / "folder" / "catalog.db"


async def until_open(storage: Storage) -> None:
    await until(storage.catalog, "the database is open")


async def test_what_is_asked_for_waits_for_the_first_try(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "catalog.db")
    storage.open()
    assert await storage.catalog() is not None
    assert await storage.forms() is not None
    assert await storage.history() is not None
    assert storage.uses == {}
    await storage.close()


async def test_without_a_place_results_are_kept_in_memory_and_nothing_else_is() -> None:
    storage = Storage(None)
    storage.open()
    assert (await storage.catalog(), await storage.forms(), await storage.history()) == (None, None, None)
    kept = await storage.kept_results()
    assert kept is not None
    await kept.begin(KeptResult("a", "me", "lines", 1, 100, 10))
    await storage.close()


@pytest.mark.slow
async def test_a_database_in_memory_is_used_again_after_it_did_not_answer() -> None:
    storage = Storage(None)
    storage.open()
    assert await storage.breaker.within(storage.kept_results) is not None
    with pytest.raises(CatalogError):
        await storage.breaker.within(asyncio.Event().wait)
    await until(lambda: not storage.breaker.is_open, "the database answers again")
    assert await storage.breaker.within(storage.kept_results) is not None
    await storage.close()


async def test_a_database_that_was_down_at_the_start_is_used_when_it_is_there(
    blocked: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Storage(blocked, first_pause=0.02)
    told = asyncio.Event()

    async def tell() -> None:
        told.set()

    storage.open(tell)
    assert await storage.catalog() is None
    assert "Continuing without it and trying again" in caplog.text
    assert await storage.kept_results() is None
    blocked.parent.unlink()
    await until_open(storage)
    async with asyncio.timeout(10):
        await told.wait()
    assert await storage.kept_results() is not None
    await storage.close()
    assert blocked.exists()


async def test_what_was_used_before_is_known_also_when_the_database_comes_late(tmp_path: Path) -> None:
    place = tmp_path / "folder" / "catalog.db"
    place.parent.mkdir()
    earlier = Storage(place)
    earlier.open()
    history = await earlier.history()
    assert history is not None
    call = Event(time.time(), EventKind.CALL, "session", "client", "github", "create_issue")
    await history.write([call])
    await earlier.close()
    aside = tmp_path / "aside"
    place.parent.rename(aside)
    place.parent.write_text("in the way")
    storage = Storage(place, first_pause=0.02)
    storage.open()
    assert await storage.catalog() is None
    assert storage.uses == {}
    place.parent.unlink()
    aside.rename(place.parent)
    await until(lambda: storage.uses)
    assert storage.uses == {("github", "create_issue"): 1}
    await storage.close()


async def test_a_database_that_never_comes_does_not_hold_up_the_end(blocked: Path) -> None:
    storage = Storage(blocked)
    storage.open()
    assert await storage.catalog() is None
    async with asyncio.timeout(5):
        await storage.close()


@pytest.mark.process
async def test_tools_and_events_from_before_the_database_opened_are_stored_when_it_opens(
    write_servers: WriteServers, blocked: Path
) -> None:
    config = write_servers({"one": plain_server("one")})
    async with Optimizer.from_config(config, database=str(blocked), encoder="none") as optimizer:
        optimizer.storage._first_pause = 0.05
        await optimizer.wait_for_servers(10)
        await optimizer.find("draw a picture")
        blocked.parent.unlink()
        await until_open(optimizer.storage)
    with closing(sqlite3.connect(blocked)) as connection:
        assert connection.execute("SELECT count(*) FROM tool").fetchone() == (9,)
        assert connection.execute("SELECT kind FROM event").fetchall() == [("find",)]
