"""History is written in the background: completely, in batches, kept for a limited time, and no caller waits for it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.history import History
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.metrics.recorder import Recorder
from tests.unit.catalogs import mcp_tool, running
from tests.waiting import until

NOW = 1_800_000_000.0
GITHUB = running("github", mcp_tool("create_issue", "Create an issue"), mcp_tool("list_issues", "List issues"))


def call(tool: str = "create_issue", at: float = NOW) -> Event:
    return Event(at=at, kind=EventKind.CALL, session="s", server="github", tool=tool, tokens=7, full_tokens=9)


@asynccontextmanager
async def opened(place: Path | str | None = None) -> AsyncIterator[History]:
    database = await open_database(place)
    try:
        yield History(database)
    finally:
        await database.close()


class Memory:
    """A store that keeps batches, and fails while `fails` is set."""

    def __init__(self, *, fails: bool = False) -> None:
        self.batches: list[list[Event]] = []
        self.fails = fails
        self.tried = 0

    async def write(self, events: Sequence[Event]) -> None:
        self.tried += 1
        if self.fails:
            raise CatalogError("database or disk is full")
        self.batches.append(list(events))

    async def forget(self, before: float) -> int:
        return 0


def recorder_of(store: Memory | None, **options: float) -> Recorder:
    async def given() -> Memory | None:
        return store

    return Recorder(given, interval=options.get("interval", 0.01), capacity=int(options.get("capacity", 100)))


# The table


async def test_an_event_comes_back_as_it_was_written(place: Path | str) -> None:
    event = Event(
        at=NOW + 0.25,
        kind=EventKind.FIND,
        session="abc",
        client="claude",
        tokens=120,
        full_tokens=10**12,
        baseline_tokens=4_000,
        milliseconds=3.5,
        cached=True,
        truncated=True,
        outcome=Outcome.TOOL_ERROR,
        found=(("github", "create_issue"), ("it's", 'a "name"')),
    )
    async with opened(place) as history:
        await history.write([event, call()])
        assert await history.read() == [event, call()]


async def test_events_are_read_from_a_moment_on_and_only_the_newest_if_asked(place: Path | str) -> None:
    async with opened(place) as history:
        await history.write([call(f"t{n}", NOW + n) for n in range(10)])
        assert [event.tool for event in await history.read(since=NOW + 7)] == ["t7", "t8", "t9"]
        assert [event.tool for event in await history.read(newest=2)] == ["t8", "t9"]


async def test_calls_are_counted_by_tool(place: Path | str) -> None:
    async with opened(place) as history:
        unknown = Event(at=NOW, kind=EventKind.CALL, session="s", outcome=Outcome.BAD_REQUEST)
        found = Event(at=NOW, kind=EventKind.FIND, session="s", found=(("github", "create_issue"),))
        await history.write([call("a"), call("b"), call("a"), unknown, found])
        assert await history.call_counts() == {("github", "a"): 2, ("github", "b"): 1}


async def test_what_is_too_old_is_forgotten_however_much_it_is(place: Path | str) -> None:
    async with opened(place) as history:
        await history.write([call(at=NOW - 100) for _ in range(6_000)] + [call(at=NOW)])
        assert await history.forget(before=NOW - 50) == 6_000
        assert await history.read() == [call(at=NOW)]


async def test_a_name_that_no_text_may_hold_spoils_no_history(place: Path | str) -> None:
    async with opened(place) as history:
        await history.write([call("nul\0")])
        assert [event.tool for event in await history.read()] == ["nul\ufffd"]


# The recorder


async def test_events_are_written_in_batches_and_the_last_ones_at_the_end() -> None:
    store = Memory()
    recorder = recorder_of(store, interval=60)
    recorder.start()
    for number in range(50):
        recorder.record(call(str(number)))
    assert recorder.waiting == 50
    await recorder.stop()
    assert [len(batch) for batch in store.batches] == [50]
    assert (recorder.written, recorder.dropped, recorder.waiting) == (50, 0, 0)


async def test_a_store_that_fails_is_tried_again_and_nothing_is_lost_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Memory(fails=True)
    recorder = recorder_of(store)
    recorder.start()
    recorder.record(call("first"))
    with caplog.at_level(logging.WARNING):
        while not store.tried:
            await asyncio.sleep(0)
    assert "database or disk is full" in caplog.text
    store.fails = False
    recorder.record(call("second"))
    await recorder.stop()
    assert [[event.tool for event in batch] for batch in store.batches] == [["first", "second"]]


async def test_a_store_that_never_answers_costs_history_which_is_counted() -> None:
    recorder = recorder_of(Memory(fails=True), capacity=10)
    recorder.start()
    for _ in range(15):
        recorder.record(call())
    assert (recorder.waiting, recorder.dropped) == (10, 5)
    await recorder.stop()
    assert (recorder.waiting, recorder.dropped) == (0, 15)


async def test_a_recorder_that_does_not_write_only_tells_those_who_watch() -> None:
    recorder = recorder_of(None)
    assert not recorder.is_heard
    with recorder.watched() as seen:
        recorder.record(call())
        assert seen.get_nowait() == call()
    recorder.record(call())
    assert seen.empty()
    await recorder.stop()
    assert (recorder.waiting, recorder.dropped) == (0, 0)


async def test_events_wait_for_a_database_that_comes_later() -> None:
    store: Memory | None = None
    asked: list[Memory | None] = []

    async def given() -> Memory | None:
        asked.append(store)
        return store

    recorder = Recorder(given, interval=0.01)
    recorder.start()
    recorder.record(call())
    await until(lambda: len(asked) >= 3)
    assert recorder.waiting == 1
    store = Memory()
    await until(lambda: recorder.written)
    await recorder.stop()
    assert store.batches == [[call()]]


async def test_a_locked_database_delays_nobody_and_is_written_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    async with opened(path) as history:

        async def store() -> History:
            return history

        recorder = Recorder(store, interval=0.01)
        recorder.start()
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            started = time.perf_counter()
            for _ in range(1_000):
                recorder.record(call())
                await asyncio.sleep(0)
            assert time.perf_counter() - started < 3
            assert recorder.written == 0
            other.rollback()
        await until(lambda: recorder.written == 1_000)
        await recorder.stop()
        assert len(await history.read()) == 1_000
