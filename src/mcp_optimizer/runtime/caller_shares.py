"""Limits how many places one caller may hold at a time, so that a busy caller leaves room for others.

Entered around work on a shared resource: workers for scripts, threads for searches. Knows callers only by a name, and
nothing of the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallerShares:
    """The places of all callers. A caller that wants none takes no memory."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._shares: dict[str, _Share] = {}

    def wanted(self, caller: str) -> int:
        """How many places a caller holds or waits for."""
        share = self._shares.get(caller)
        return share.users if share is not None else 0

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Waits for one of this caller's places, first come, first served, and holds it."""
        share = self._shares.setdefault(caller, _Share(self.each))
        share.join()
        try:
            async with share.free:
                yield
        finally:
            if share.leave():
                del self._shares[caller]


class _Share:
    """One caller's places, and how many are held or wanted."""

    def __init__(self, most: int) -> None:
        self.free = asyncio.Semaphore(most)
        self.users = 0

    def join(self) -> None:
        """Adds one to the wanted places."""
        self.users += 1

    def leave(self) -> bool:
        """Removes one from the wanted places; returns whether it was the last."""
        self.users -= 1
        return not self.users
