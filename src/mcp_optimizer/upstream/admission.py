"""Limits the calls to one server: so many in progress, so many waiting, and no more.

Without a limit a slow server would fill the gateway's memory with calls that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import time

from mcp_optimizer.errors import ServerBusy

_SMOOTHING = 0.1


class Admission:
    """Admits calls to one server."""

    def __init__(self, server: str, most_under_way: int, most_waiting: int) -> None:
        self._server = server
        self._most_under_way = most_under_way
        self._most_waiting = most_waiting
        self._places = asyncio.Semaphore(most_under_way)
        self._waiting = 0
        self._under_way = 0
        self._usual_seconds = 0.1
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def waiting(self) -> int:
        return self._waiting

    async def emptied(self) -> None:
        """Wait until no call is in progress or waiting."""
        await self._emptied.wait()

    def admit(self) -> _Place:
        """Held during one call; raises ServerBusy if too many are already waiting."""
        return _Place(self)

    async def begin(self) -> None:
        """A call begins, as soon as there is a place."""
        if self._places.locked() and self._waiting >= self._most_waiting:
            turns = 1 + self._waiting / self._most_under_way
            raise ServerBusy(self._server, self._under_way, self._waiting, max(1.0, self._usual_seconds * turns))
        self._emptied.clear()
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
            self._see_if_empty()
        self._emptied.clear()
        self._under_way += 1

    def end(self, seconds: float) -> None:
        """A call is over that took so long."""
        self._under_way -= 1
        self._places.release()
        self._see_if_empty()
        self._usual_seconds += _SMOOTHING * (seconds - self._usual_seconds)

    def _see_if_empty(self) -> None:
        if not self._under_way and not self._waiting:
            self._emptied.set()


class _Place:
    """One call. A class, because a generator takes twice as long and every call has one."""

    __slots__ = ("_admission", "_started")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def __aenter__(self) -> None:
        await self._admission.begin()
        self._started = time.monotonic()

    async def __aexit__(self, *_error: object) -> None:
        self._admission.end(time.monotonic() - self._started)
