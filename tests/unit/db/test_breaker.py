"""Requests wait a moment for the database, and not at all while it is known not to answer."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.errors import CatalogError
from tests.waiting import until


class Hanging:
    """Something that answers only once it is let."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked = self.probed = 0

    async def ask(self) -> str:
        self.asked += 1
        await self.answers.wait()
        return "answer"

    async def probe(self) -> None:
        self.probed += 1
        if not self.answers.is_set():
            raise CatalogError("still away")


async def test_after_one_request_waited_in_vain_nobody_asks_until_a_probe_succeeds() -> None:
    database = Hanging()
    breaker = Breaker(database.probe, patience=0.02)
    with pytest.raises(CatalogError, match="does not answer within"):
        await breaker.within(database.ask)
    for _ in range(10):
        with pytest.raises(CatalogError, match="does not answer"):
            await breaker.within(database.ask)
    assert (database.asked, breaker.is_open) == (1, True)
    await until(lambda: database.probed)
    database.answers.set()
    await until(lambda: not breaker.is_open)
    assert await breaker.within(database.ask) == "answer"
    await breaker.close()


async def test_what_is_written_goes_on_when_nobody_waits_any_more() -> None:
    database = Hanging()
    breaker = Breaker(database.probe, patience=0.02)
    written: list[int] = []

    async def write(number: int) -> None:
        await database.ask()
        written.append(number)

    for number in range(3):
        with pytest.raises(CatalogError):
            await breaker.begun(partial(write, number))
    database.answers.set()
    await until(lambda: len(written) == 3)
    await breaker.close()


async def test_a_request_that_is_given_up_does_not_cut_off_its_query() -> None:
    database = Hanging()
    breaker = Breaker(database.probe, patience=60)
    request = asyncio.create_task(breaker.within(database.ask))
    await until(lambda: database.asked)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    database.answers.set()
    await breaker.close()
    assert not breaker.is_open


async def test_an_error_of_the_database_is_passed_on_and_nothing_else_changes() -> None:
    async def full() -> None:
        raise CatalogError("the disk is full")

    breaker = Breaker(patience=60)
    for _ in range(2):
        with pytest.raises(CatalogError, match="the disk is full"):
            await breaker.within(full)
    assert not breaker.is_open


async def test_the_time_that_opening_takes_does_not_count() -> None:
    opening = Hanging()

    async def opened() -> None:
        await opening.ask()

    async def answers() -> str:
        await opened()
        return "answer"

    breaker = Breaker(patience=0.02, opened=opened)
    asking = asyncio.create_task(breaker.within(answers))
    await asyncio.wait({asking}, timeout=0.1)
    assert not asking.done()
    opening.answers.set()
    assert await asking == "answer"
    assert not breaker.is_open


@pytest.mark.slow
async def test_a_busy_loop_of_our_own_is_not_taken_for_a_database_that_does_not_answer() -> None:
    loop, answered = asyncio.get_running_loop(), asyncio.Event()

    def be_busy() -> None:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        if not answered.is_set():
            loop.call_soon(be_busy)

    async def ask() -> str:
        # Each answer is there at once, and is heard when the loop gets to it.
        for _ in range(8):
            await asyncio.to_thread(int)
        answered.set()
        return "answer"

    breaker = Breaker(patience=0.2)
    loop.call_soon(be_busy)
    try:
        assert await breaker.within(ask) == "answer"
    finally:
        answered.set()
    assert not breaker.is_open
    await breaker.close()
