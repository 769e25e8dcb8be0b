"""Limits the calls to one server: so many in progress, so many waiting, and no more.

Without a limit a slow server would fill the gateway's memory with calls that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from mcp_optimizer.errors import ServerBusy

_SMOOTHING = 0.1


class Admission:
    """Admits calls to one server. Between `begin` and `end` a call has one of its places."""

    def __init__(self, server: str, most_under_way: int, most_waiting: int) -> None:
        self._server = server
        self._most_under_way = most_under_way
        self._most_waiting = most_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Who gets the next place; while anybody waits, all places are taken."""
        self._under_way = 0
        self._usual_seconds = 0.1
        self._emptied = asyncio.Event()

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def emptied(self) -> None:
        """Wait until no call is in progress or waiting."""
        while self._under_way:
            self._emptied.clear()
            await self._emptied.wait()

    async def begin(self) -> float:
        """A call begins, as soon as there is a place; returns when. Raises ServerBusy if too many already wait."""
        if self._under_way < self._most_under_way:
            self._under_way += 1
        else:
            await self._turn()
        return time.monotonic()

    def end(self, began: float) -> None:
        """A call is over that began then."""
        self._usual_seconds += _SMOOTHING * (time.monotonic() - began - self._usual_seconds)
        self._leave()

    async def _turn(self) -> None:
        if len(self._waiting) >= self._most_waiting:
            turns = 1 + len(self._waiting) / self._most_under_way
            seconds = max(1.0, self._usual_seconds * turns)
            raise ServerBusy(self._server, self._under_way, len(self._waiting), seconds)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # It got the place in the same moment.
                self._leave()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def _leave(self) -> None:
        """Pass a place on to the first who still waits, or else free it."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._under_way -= 1
        if not self._under_way:
            self._emptied.set()
