"""Runs expensive work in dedicated threads that no caller can occupy alone.

Searches have their own threads, reading large requests has others, and checking their arguments has others again.
Everything else uses asyncio's default threads, so this work never delays it. A caller's work waits for a small share of
each other caller's work, never for another caller's whole queue. Knows callers by their ids, and work as functions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.runtime.caller_shares import CallerShares
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

T = TypeVar("T")


class CallerThreads:
    """Shares a few threads among all callers."""

    def __init__(self, work: str, waiting: int, threads: int) -> None:
        """`work`: its name, in the plural. `waiting`: how many jobs of one caller may wait; more are refused.

        `threads`: keep it small. They compute, and each one makes the event loop wait longer for the interpreter.
        """
        self._name = work
        self._waiting = waiting
        self._threads = ThreadPoolExecutor(threads, work)
        self._free = asyncio.Semaphore(threads)
        self._shares = CallerShares(max(1, threads - 1))
        # The caller that awaits the result gets the error, so it is not logged again.
        self._running = BackgroundTasks(logger, f"One of the {work} failed", expected=(Exception,))

    async def run(self, caller: str, work: Callable[[], T]) -> T:
        """The work's result, when it is the caller's turn. Raises InvalidRequest if too much of its work waits.

        A cancelled caller leaves the queue. Work that has started keeps its thread until it is done.
        """
        if self._shares.wanted(caller) >= self._shares.each + self._waiting:
            raise InvalidRequest(
                f"{self._waiting:,} {self._name} of this caller are waiting already. Wait for replies, then try again."
            )
        async with AsyncExitStack() as taken:
            # First a place among the caller's own, then one among all: the queue holds little of each caller's work.
            await taken.enter_async_context(self._shares.place(caller))
            await taken.enter_async_context(self._free)
            return await asyncio.shield(self._running.spawn(self._run(taken.pop_all(), work)))

    async def _run(self, taken: AsyncExitStack, work: Callable[[], T]) -> T:
        async with taken:
            in_context = partial(copy_context().run, work)
            return await asyncio.get_running_loop().run_in_executor(self._threads, in_context)
