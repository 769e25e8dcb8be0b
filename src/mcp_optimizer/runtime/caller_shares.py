"""The places that one caller may have at a time, so that whoever starts much leaves room for others.

Entered around work that callers share something for: scripts their workers, searches their threads. Knows callers only
by a name, and nothing of the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallerShares:
    """The places of all callers. A caller who wants none takes no memory."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._shares: dict[str, _Share] = {}

    def wanted(self, caller: str) -> int:
        """How many places a caller has or waits for."""
        share = self._shares.get(caller)
        return share.users if share is not None else 0

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Wait for one of this caller's places, first come, first served, and keep it."""
        share = self._shares.setdefault(caller, _Share(self.each))
        share.join()
        try:
            async with share.free:
                yield
        finally:
            if share.leave():
                del self._shares[caller]


class _Share:
    """One caller's places, and how many have or want one."""

    def __init__(self, most: int) -> None:
        self.free = asyncio.Semaphore(most)
        self.users = 0

    def join(self) -> None:
        """One more wants a place."""
        self.users += 1

    def leave(self) -> bool:
        """One less; says whether it was the last."""
        self.users -= 1
        return not self.users
