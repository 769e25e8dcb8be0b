"""Work that nobody waits for is done in its order: in the next turn of the event loop, together, or when asked for."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from mcp_optimizer.runtime.tasks import Afterwards
from tests.waiting import until


async def test_work_is_done_in_the_next_turn_and_in_its_order() -> None:
    done: list[int] = []
    afterwards = Afterwards()
    for number in range(3):
        afterwards.do(partial(done.append, number))
    assert done == []
    await asyncio.sleep(0)
    assert done == [0, 1, 2]


async def test_work_can_be_finished_at_once_and_is_done_only_once() -> None:
    done: list[int] = []
    afterwards = Afterwards()
    afterwards.do(lambda: done.append(1))
    afterwards.finish()
    await asyncio.sleep(0)
    afterwards.do(lambda: done.append(2))
    await asyncio.sleep(0)
    assert done == [1, 2]


async def test_work_is_collected_for_as_long_as_is_said_and_done_in_its_order() -> None:
    done: list[int] = []
    afterwards = Afterwards(together=0.01)
    for number in range(3):
        afterwards.do(partial(done.append, number))
        await asyncio.sleep(0)
    assert done == []
    await until(lambda: bool(done))
    assert done == [0, 1, 2]


async def test_much_work_is_not_collected_for_long() -> None:
    done: list[int] = []
    afterwards = Afterwards(together=3_600)
    for number in range(100):
        afterwards.do(partial(done.append, number))
        await asyncio.sleep(0)
    assert len(done) > 50
    afterwards.finish()
    assert done == list(range(100))


async def test_what_comes_after_work_was_finished_is_collected_anew() -> None:
    done: list[int] = []
    afterwards = Afterwards(together=0.01)
    for number in range(2):
        afterwards.do(partial(done.append, number))
        afterwards.finish()
    afterwards.do(partial(done.append, 2))
    assert done == [0, 1]
    await until(lambda: done == [0, 1, 2])


async def test_work_that_wants_the_rest_to_be_done_comes_first_all_the_same() -> None:
    done: list[int] = []
    afterwards = Afterwards()

    def work(number: int) -> None:
        afterwards.finish()
        done.append(number)

    for number in range(3):
        afterwards.do(partial(work, number))
    await asyncio.sleep(0)
    assert done == [0, 1, 2]


def test_where_no_event_loop_runs_work_is_done_at_once() -> None:
    done: list[int] = []
    Afterwards().do(lambda: done.append(1))
    assert done == [1]


async def test_work_that_fails_is_logged_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    afterwards = Afterwards()
    afterwards.do(lambda: done.append(1 // 0))
    afterwards.do(lambda: done.append(2))
    await asyncio.sleep(0)
    afterwards.do(lambda: done.append(3))
    await asyncio.sleep(0)
    assert done == [2, 3]
    assert "ZeroDivisionError" in caplog.text
