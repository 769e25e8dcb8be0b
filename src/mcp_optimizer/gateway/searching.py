"""Whose search runs now: in threads of their own, of which one caller never has all.

Asked by the gateway for every search. Calls, cut results and everything else use asyncio's own threads, so that no
number of searches delays them; and a caller's search waits for a few of each other caller's, never for its queue.
Knows callers by their ids, and searches as functions.
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

_THREADS = 3
"""Searches at a time. Few: they compute, and each more makes the event loop wait longer for the interpreter."""

T = TypeVar("T")


class SearchTurns:
    """The turns of all callers."""

    def __init__(self, waiting: int, threads: int = _THREADS) -> None:
        """`waiting`: how many searches of one caller may wait; further ones are refused."""
        self._waiting = waiting
        self._threads = ThreadPoolExecutor(threads, "searches")
        self._free = asyncio.Semaphore(threads)
        self._shares = CallerShares(max(1, threads - 1))
        # Whoever waits gets the error; it is no news here.
        self._running = BackgroundTasks(logger, "A search failed", expected=(Exception,))

    async def run(self, caller: str, search: Callable[[], T]) -> T:
        """What a search finds, when it is the caller's turn. Raises InvalidRequest if too many of its searches wait.

        Whoever stops waiting leaves the queue. A search that runs already keeps its thread until it is done.
        """
        if self._shares.wanted(caller) >= self._shares.each + self._waiting:
            raise InvalidRequest(
                f"{self._waiting:,} searches of this caller are waiting already. Wait for their replies, then search "
                "again."
            )
        async with AsyncExitStack() as taken:
            # First a place among the caller's own, then one among all: so a queue holds few of each caller's searches.
            await taken.enter_async_context(self._shares.place(caller))
            await taken.enter_async_context(self._free)
            return await asyncio.shield(self._running.spawn(self._run(taken.pop_all(), search)))

    async def _run(self, taken: AsyncExitStack, search: Callable[[], T]) -> T:
        async with taken:
            in_context = partial(copy_context().run, search)
            return await asyncio.get_running_loop().run_in_executor(self._threads, in_context)
