"""Waiting in tests for what happens in its own time: in another process, in a thread, in a file.

What a test can await directly (a task, an event, a queue) it awaits; this is for everything else.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

Found = TypeVar("Found")

_TURNS = 10
"""Looks without a pause, because another task of the same event loop needs turns rather than time."""

_PAUSE = 0.005
"""Seconds between later looks."""


async def until(condition: Callable[[], object], what: str = "", timeout: float = 10.0) -> None:
    """Wait until a condition holds, plain or asynchronous; fail with `what`, or its source, when it takes too long."""
    try:
        async with asyncio.timeout(timeout) as limit:
            for turn in count():
                holds = condition()
                if inspect.isawaitable(holds):
                    holds = await holds
                if holds:
                    return
                await asyncio.sleep(0 if turn < _TURNS else _PAUSE)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"not within {timeout:g} s: {what or _source(condition)}") from None


def found_in_time(look: Callable[[], Found | None], what: str, timeout: float = 30.0) -> Found:
    """Outside a loop, for fixtures that hold processes: look until there is something, and return it."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(_PAUSE)
    return found


async def other_tasks(timeout: float = 10.0) -> None:
    """Wait until the tasks that run now, apart from the caller's, are done."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    pending = (await asyncio.wait(others, timeout=timeout))[1] if others else set()
    assert not pending, f"not done within {timeout:g} s: {pending}"


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
