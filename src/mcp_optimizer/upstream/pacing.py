"""Paces the work that thousands of servers cause in the event loop: one piece of it in each turn of the loop.

A task that yields after each piece gives way to nobody if five thousand others do the same in that turn. No task holds
a turn while it waits for a server, so a server that hangs delays no other. Used by the servers of a pool; knows none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_MOST_UNREAD = 8
"""Listings that wait to be read before no further server begins: each takes ten times its memory until it is read."""


class Pacer:
    """Hands out the turns. Work that was begun comes before work that is to begin, so little is half done."""

    def __init__(self) -> None:
        self._going_on: deque[asyncio.Future[None]] = deque()
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._is_taken = False
        self._unread = 0
        # One thread: a second would only take the interpreter from the first, and a place from calls.
        self._in_thread = asyncio.Lock()

    async def to_begin(self) -> None:
        await self._next(self._beginning, is_free=not self._is_taken and self._unread < _MOST_UNREAD)

    async def to_go_on(self) -> None:
        await self._next(self._going_on, is_free=not self._is_taken)

    async def in_thread(self, work: Callable[[], object]) -> None:
        """Work that is too much for one turn of the loop, beside it; one server's after the other's."""
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
        """Give the next turn of the loop to whoever waits first; nobody's slice is in this turn any more."""
        ready = (self._going_on, self._beginning) if self._unread < _MOST_UNREAD else (self._going_on,)
        for waiting in ready:
            while waiting:
                # Somebody may have stopped waiting.
                if not (mine := waiting.popleft()).done():
                    self._is_taken = True
                    mine.set_result(None)
                    asyncio.get_running_loop().call_soon(self._pass_on)
                    return
        self._is_taken = False
