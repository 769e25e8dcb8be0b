"""Results that wait for the database: readable meanwhile, bounded, and written in the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.kept_results import Chunk, KeptResult
from mcp_optimizer.errors import CatalogError, InvalidRequest
from mcp_optimizer.results.calls import Call, ResultOptions, Treatment
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.limits import ResultLimits, whole_pieces
from mcp_optimizer.results.pipeline import NOT_KEPT, Results
from mcp_optimizer.results.result_store import HeldResult, ResultStore, StoreLimits, WaitingResults
from mcp_optimizer.results.result_texts import Reading
from tests.unit.results.test_limits import COUNTER, PEOPLE, text_result, texts
from tests.waiting import until


def held(name: str, size: int = 100) -> HeldResult:
    chunks = [Chunk(0, first, b"\1\0\0\0" * 2, b"x" * (size // 2 - 8)) for first in (0, 2)]
    return HeldResult.of(KeptResult(name, "me", "lines", 4, 100, size), chunks)


class Database:
    """Takes results only while it is told to."""

    def __init__(self) -> None:
        self.takes = False
        self.written: list[str] = []

    async def write(self, one: HeldResult) -> None:
        await asyncio.sleep(0)
        if not self.takes:
            raise CatalogError("read-only")
        self.written.append(one.result.id)


async def test_what_waits_can_be_read_and_is_written_in_order_once_the_database_takes_it() -> None:
    database = Database()
    waiting = WaitingResults(database.write, 1_000)
    assert [waiting.add(held(name)) for name in "abc"] == [True, True, True]
    found = waiting.find("b")
    assert found is not None
    assert [chunk.first for piece in range(4) if (chunk := found.chunk(piece))] == [0, 0, 2, 2]
    database.takes = True
    await until(lambda: not waiting)
    assert (database.written, waiting.find("b"), waiting.lost) == (["a", "b", "c"], None, 0)


async def test_beyond_its_bytes_the_oldest_is_lost_and_what_is_larger_is_not_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = WaitingResults(Database().write, 250)
    assert [waiting.add(held(name)) for name in "abc"] == [True, True, True]
    assert [waiting.find(name) is not None for name in "abc"] == [False, True, True]
    assert not waiting.add(held("d", 252))
    assert (len(waiting), waiting.lost) == (2, 1)
    assert "1 lost so far" in caplog.text
    await waiting.stop(0.01)
    assert "2 results that were cut were not written" in caplog.text


async def test_an_attempt_that_is_under_way_is_not_made_twice() -> None:
    database = Database()
    database.takes = True
    waiting = WaitingResults(database.write, 1_000)
    go = asyncio.Event()

    async def attempt() -> None:
        await go.wait()
        await database.write(held("a"))

    waiting.add(held("a"), asyncio.create_task(attempt()))
    go.set()
    await until(lambda: not waiting)
    assert database.written == ["a"]


async def test_a_result_that_cannot_be_kept_says_so() -> None:
    async def broken() -> KeptResults:
        raise CatalogError("the disk is full")

    store = ResultStore(broken, StoreLimits(waiting_bytes=10))
    results = Results(Estimator("auto", COUNTER), store, ResultOptions(Treatment(max_rows=10)))

    async def ask() -> dict[str, Any]:
        return text_result(json.dumps(PEOPLE))

    result = await results.answer(Call("s", "t"), ask)
    assert texts(result)[1] == NOT_KEPT
    with pytest.raises(InvalidRequest, match="the disk is full"):
        await results.read("r123")


class Looking(KeptResults):
    """Counts how often all that is kept is looked at."""

    looks = 0

    async def forget(self, older_than_seconds: float, most_bytes: int) -> None:
        self.looks += 1
        await super().forget(older_than_seconds, most_bytes)


async def test_what_is_old_is_looked_for_now_and_then_and_not_with_each_result() -> None:
    database = await open_database(None)
    try:
        kept = Looking(database)

        async def opened() -> KeptResults:
            return kept

        async def keep(store: ResultStore, number: int) -> None:
            pieces = await asyncio.to_thread(whole_pieces, Reading(text_result("word " * 4_000)), ResultLimits(), len)
            assert await store.keep(f"r{id(store)}{number}", "me", pieces, 100)
            await store.settled()

        store, small = ResultStore(opened), ResultStore(opened, StoreLimits(megabytes=0))
        for number in range(20):
            await keep(store, number)
        assert kept.looks == 1
        for number in range(5):
            await keep(small, number)
        assert kept.looks == 6, "each time where hardly anything may be kept"
    finally:
        await database.close()
