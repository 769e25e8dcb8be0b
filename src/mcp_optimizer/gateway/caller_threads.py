"""Runs expensive work in threads of its own, all of which one caller never has.

Searches have such threads, large requests have others for being read, and their arguments others again for being
checked. Everything else uses asyncio's own threads, so that no number of these delays it; and a caller's work waits for
a little of each other caller's, never for its queue. Knows callers by their ids, and work as functions.
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
    """The turns of all callers."""

    def __init__(self, work: str, waiting: int, threads: int) -> None:
        """`work`: its name, in the plural. `waiting`: how many of one caller's may wait; further ones are refused.

        `threads`: few. They compute, and each more makes the event loop wait longer for the interpreter.
        """
        self._name = work
        self._waiting = waiting
        self._threads = ThreadPoolExecutor(threads, work)
        self._free = asyncio.Semaphore(threads)
        self._shares = CallerShares(max(1, threads - 1))
        # Whoever waits gets the error; it is no news here.
        self._running = BackgroundTasks(logger, f"One of the {work} failed", expected=(Exception,))

    async def run(self, caller: str, work: Callable[[], T]) -> T:
        """What the work returns, when it is the caller's turn. Raises InvalidRequest if too much of its work waits.

        Whoever stops waiting leaves the queue. Work that is under way keeps its thread until it is done.
        """
        if self._shares.wanted(caller) >= self._shares.each + self._waiting:
            raise InvalidRequest(
                f"{self._waiting:,} {self._name} of this caller are waiting already. Wait for replies, then try again."
            )
        async with AsyncExitStack() as taken:
            # First a place among the caller's own, then one among all: so a queue holds little of each caller's work.
            await taken.enter_async_context(self._shares.place(caller))
            await taken.enter_async_context(self._free)
            return await asyncio.shield(self._running.spawn(self._run(taken.pop_all(), work)))

    async def _run(self, taken: AsyncExitStack, work: Callable[[], T]) -> T:
        async with taken:
            in_context = partial(copy_context().run, work)
            return await asyncio.get_running_loop().run_in_executor(self._threads, in_context)
