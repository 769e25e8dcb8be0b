"""What is to be ended is ended, whatever another part does."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mcp_optimizer.app import end_all


async def test_a_part_that_fails_and_one_that_hangs_keep_no_other_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    ended = []

    async def well() -> None:
        ended.append("well")

    async def fails() -> None:
        raise KeyError("a bug")

    async def hangs() -> None:
        while True:
            try:
                await asyncio.sleep(60)
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
    started = time.monotonic()
    await end_all({str(number): lambda: asyncio.sleep(60) for number in range(5)}, 0.2)
    assert time.monotonic() - started < 5
