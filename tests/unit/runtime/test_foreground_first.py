"""Background work waits for foreground work, but not forever."""

from __future__ import annotations

import asyncio
import time

import pytest

from mcp_optimizer.runtime.tasks import ForegroundGate


async def test_background_work_goes_on_when_the_last_foreground_work_is_done() -> None:
    foreground_first = ForegroundGate()
    with foreground_first.working():
        with foreground_first.working():
            waiting = asyncio.create_task(foreground_first.wait())
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting


async def test_work_that_fails_is_over_too() -> None:
    foreground_first = ForegroundGate()
    with pytest.raises(ValueError, match="broken"), foreground_first.working():
        raise ValueError("broken")
    async with asyncio.timeout(5):
        await foreground_first.wait()


async def test_foreground_work_that_begins_at_the_same_time_comes_first() -> None:
    foreground_first = ForegroundGate()
    waiting = asyncio.create_task(foreground_first.wait())
    await asyncio.sleep(0)
    with foreground_first.working():
        await asyncio.sleep(0.2)
        assert not waiting.done()
    await waiting


async def test_nobody_waits_for_ever() -> None:
    foreground_first = ForegroundGate(patience=0.05)
    started = time.monotonic()
    with foreground_first.working():
        await foreground_first.wait()
    assert time.monotonic() - started < 5
