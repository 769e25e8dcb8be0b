"""Whoever takes longer than a moment is told."""

from __future__ import annotations

import asyncio

from mcp_optimizer.runtime.loop_timers import SlowTimer
from tests.waiting import until


async def test_whoever_takes_longer_is_told_once_and_whoever_is_done_is_not() -> None:
    told: list[str] = []
    moments = SlowTimer(0.02)

    def slow() -> None:
        told.append("slow")

    def quick() -> None:
        told.append("quick")

    moments.begin(slow)
    moments.begin(quick)
    moments.end(quick)
    await until(lambda: bool(told))
    # Another one begins and ends, and gives the first another chance to be told.
    moments.begin(quick)
    moments.end(quick)
    moments.begin(other := lambda: told.append("other"))
    await until(lambda: len(told) > 1)
    moments.end(other)
    assert told == ["slow", "other"]


async def test_nobody_is_told_before_a_moment_is_over_although_the_timer_runs_for_others() -> None:
    loop, told, began = asyncio.get_running_loop(), asyncio.Event(), 0.0
    moments = SlowTimer(0.05)

    def begin_another() -> None:
        nonlocal began
        began = loop.time()
        moments.begin(told.set)

    moments.begin(begin_another)
    await told.wait()
    assert loop.time() - began > 0.045


async def test_a_callback_may_end_itself_and_begin_again() -> None:
    moments, told = SlowTimer(0.01), 0

    def again() -> None:
        nonlocal told
        told += 1
        moments.end(again)
        moments.begin(again)

    moments.begin(again)
    await until(lambda: told >= 2)
    moments.end(again)
