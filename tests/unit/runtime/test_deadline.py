"""A deadline interrupts what takes too long, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.runtime.loop_timers import Deadline, SlowTimer


def deadline(seconds: float) -> Deadline:
    return Deadline(seconds, SlowTimer(min(0.1, seconds / 2)))


async def test_what_takes_too_long_is_interrupted_and_its_task_goes_on() -> None:
    with pytest.raises(TimeoutError), deadline(0.01):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_what_ends_in_time_is_never_interrupted() -> None:
    with deadline(0.01):
        pass
    done, _ = await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=0.05)
    assert not done


async def test_it_interrupts_no_sooner_than_its_time() -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError), Deadline(0.1, SlowTimer(0.01)):
        await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() - began >= 0.099


async def test_an_error_passes_as_it_is() -> None:
    with pytest.raises(ValueError, match="wrong"), deadline(1):
        raise ValueError("wrong")


async def test_a_task_that_another_cancels_is_cancelled_even_if_it_is_late() -> None:
    async def late() -> None:
        with deadline(0.01):
            try:
                await asyncio.Event().wait()
            finally:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(late())


async def test_the_inner_of_two_deadlines_ends_only_its_own_part() -> None:
    with deadline(30):
        with pytest.raises(TimeoutError), deadline(0.01):
            await asyncio.Event().wait()
        await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=0.01)
