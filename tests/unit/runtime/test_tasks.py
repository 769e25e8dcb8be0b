"""Background tasks are kept alive, their failures are logged, and they end when they are closed."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from mcp_optimizer.runtime.tasks import BackgroundTasks

LOGGER = logging.getLogger("mcp_optimizer.test")


@pytest.fixture
def tasks() -> BackgroundTasks:
    return BackgroundTasks(LOGGER, "The work failed")


async def fail(error: Exception) -> None:
    raise error


async def test_a_failure_is_logged_once_with_its_traceback(
    tasks: BackgroundTasks, caplog: pytest.LogCaptureFixture
) -> None:
    task = tasks.spawn(fail(KeyError("a bug")))
    await tasks.settled()
    del task
    gc.collect()
    [record] = caplog.records
    assert (record.levelno, record.name, record.getMessage()) == (
        logging.ERROR,
        "mcp_optimizer.test",
        "The work failed",
    )
    assert "in fail" in caplog.text
    assert "KeyError" in caplog.text


async def test_what_is_expected_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks(LOGGER, "The work failed", expected=(ConnectionError, LookupError))
    with caplog.at_level(logging.DEBUG, "mcp_optimizer"):
        tasks.spawn(fail(ConnectionResetError("gone")))
        tasks.spawn(fail(ValueError("a bug")))
        await tasks.settled()
    levels = sorted((record.levelno, record.getMessage()) for record in caplog.records)
    assert levels == [(logging.DEBUG, "The work failed: gone"), (logging.ERROR, "The work failed")]


async def test_a_task_that_nobody_else_holds_is_kept_until_it_is_done(tasks: BackgroundTasks) -> None:
    done = asyncio.Event()

    async def waits_for_what_only_it_holds() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        done.set()

    seen = weakref.ref(tasks.spawn(waits_for_what_only_it_holds()))
    gc.collect()
    assert seen() is not None
    async with asyncio.timeout(5):
        await done.wait()
        await tasks.settled()
    await asyncio.sleep(0)
    gc.collect()
    assert seen() is None
    assert len(tasks) == 0


async def test_closing_cancels_and_waits_until_the_last_has_cleaned_up(tasks: BackgroundTasks) -> None:
    cleaned: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("work")
            # A task started while all tasks are being closed is closed too.
            tasks.spawn(asyncio.Event().wait())

    tasks.spawn(work())
    await begun.wait()
    async with asyncio.timeout(5):
        await tasks.close()
    assert cleaned == ["work"]
    assert len(tasks) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_task_is_no_failure(tasks: BackgroundTasks, caplog: pytest.LogCaptureFixture) -> None:
    tasks.spawn(asyncio.Event().wait())
    await asyncio.sleep(0)
    await tasks.close()
    assert caplog.records == []


async def test_whoever_stops_waiting_stops_no_work(tasks: BackgroundTasks) -> None:
    go_on = asyncio.Event()
    work = tasks.spawn(go_on.wait())
    waiting = asyncio.create_task(tasks.settled())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not work.done()
    go_on.set()
    assert await work


async def test_settled_waits_also_for_what_work_begins(tasks: BackgroundTasks) -> None:
    done: list[str] = []

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        done.append("first")
        tasks.spawn(second())

    tasks.spawn(first())
    await tasks.settled()
    assert done == ["first", "second"]


async def test_it_says_when_the_last_task_is_done() -> None:
    idle: list[int] = []
    mine = BackgroundTasks(LOGGER, "The work failed", on_idle=lambda: idle.append(len(mine)))
    for _ in range(3):
        mine.spawn(asyncio.sleep(0))
    await mine.settled()
    await asyncio.sleep(0)
    assert idle == [0]
