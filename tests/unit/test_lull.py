"""What can wait waits for what somebody waits for, and not for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from mcp_optimizer.lull import Lull


async def test_whoever_can_wait_goes_on_when_the_last_work_is_done() -> None:
    lull = Lull()
    with lull.working():
        with lull.working():
            waiting = asyncio.create_task(lull.wait())
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting


async def test_work_that_fails_is_over_too() -> None:
    lull = Lull()
    with pytest.raises(ValueError, match="broken"), lull.working():
        raise ValueError("broken")
    async with asyncio.timeout(5):
        await lull.wait()


async def test_work_that_begins_with_the_same_news_comes_first() -> None:
    lull = Lull()
    waiting = asyncio.create_task(lull.wait())
    await asyncio.sleep(0)
    with lull.working():
        await asyncio.sleep(0.2)
        assert not waiting.done()
    await waiting


async def test_nobody_waits_for_ever() -> None:
    lull = Lull(patience=0.05)
    started = time.monotonic()
    with lull.working():
        await lull.wait()
    assert time.monotonic() - started < 5
