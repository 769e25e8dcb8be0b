"""Every part is ended, even if another one fails or hangs."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mcp_optimizer.app.life import ShutdownSequence, end_all


async def test_a_part_that_fails_and_one_that_hangs_keep_no_other_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    ended = []

    async def well() -> None:
        ended.append("well")

    async def fails() -> None:
        raise KeyError("a bug")

    async def hangs() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(ended) > 1:
                    raise

    async def last() -> None:
        ended.append("last")

    started = time.monotonic()
    with caplog.at_level(logging.ERROR):
        await end_all({"one": well, "two": fails, "three": hangs, "four": last}, 0.3)
    assert ended == ["well", "last"]
    assert time.monotonic() - started < 5
    assert "two failed to end" in caplog.text
    assert "three did not end within" in caplog.text
    leftover = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in leftover:
        task.cancel()
    await asyncio.wait(leftover)


async def test_many_parts_that_hang_take_no_longer_than_one() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    started = time.monotonic()
    await end_all(dict.fromkeys(map(str, range(5)), hangs), 0.2)
    assert time.monotonic() - started < 5


async def test_parts_end_once_and_a_second_request_waits_for_that() -> None:
    ended: list[str] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await may_end.wait()
        ended.append("slow")

    async def quick() -> None:
        ended.append("quick")

    ending = ShutdownSequence()
    ending.add("built first", quick)
    ending.add("built last", slow)
    ending.first(lambda: ended.append("at once"))
    first = asyncio.create_task(ending.all(10))
    await begun.wait()
    again = asyncio.create_task(ending.all(10))
    await asyncio.sleep(0)
    assert not again.done()
    may_end.set()
    await asyncio.gather(first, again)
    assert ended == ["at once", "slow", "quick"]


async def test_the_other_parts_end_even_if_the_task_that_ends_them_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def last() -> None:
        ended.set()

    stopping = asyncio.create_task(end_all({"one": hangs, "two": last}, 30))
    await begun.wait()
    stopping.cancel()
    await asyncio.wait({stopping})
    assert stopping.cancelled()
    assert ended.is_set()
