"""Paces the work that thousands of servers cause in the event loop: one piece of work per iteration of the loop.

Yielding after each piece is not enough if five thousand tasks do so in the same iteration. No task holds a turn while
it waits for a server, so a server that hangs delays no other. Used by the pool's servers; knows none of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_MOST_UNREAD = 8
"""Listings waiting to be read at which no further server starts: an unread one takes ten times its final memory."""


class Pacer:
    """Hands out turns. Continuing work comes before new work, so that little is half done at any time."""

    def __init__(self) -> None:
        self._going_on: deque[asyncio.Future[None]] = deque()
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._is_taken = False
        self._unread = 0
        # One thread only: a second would compete with it for the interpreter, and take a worker thread from calls.
        self._in_thread = asyncio.Lock()

    async def to_begin(self) -> None:
        await self._next(self._beginning, is_free=not self._is_taken and self._unread < _MOST_UNREAD)

    async def to_go_on(self) -> None:
        await self._next(self._going_on, is_free=not self._is_taken)

    async def in_thread(self, work: Callable[[], object]) -> None:
        """Run work that is too long for one turn in a thread, for one server at a time."""
        self._unread += 1
        try:
            async with self._in_thread:
                await asyncio.to_thread(work)
        finally:
            self._unread -= 1
            if not self._is_taken:
                self._pass_on()

    async def _next(self, waiting: deque[asyncio.Future[None]], *, is_free: bool) -> None:
        loop = asyncio.get_running_loop()
        if is_free:
            self._is_taken = True
            loop.call_soon(self._pass_on)
            return
        mine: asyncio.Future[None] = loop.create_future()
        waiting.append(mine)
        await mine

    def _pass_on(self) -> None:
        """Give the next iteration of the loop to the first waiting task, now that the current turn is over."""
        ready = (self._going_on, self._beginning) if self._unread < _MOST_UNREAD else (self._going_on,)
        for waiting in ready:
            while waiting:
                # Skip tasks that were cancelled while they waited.
                if not (mine := waiting.popleft()).done():
                    self._is_taken = True
                    mine.set_result(None)
                    asyncio.get_running_loop().call_soon(self._pass_on)
                    return
        self._is_taken = False
