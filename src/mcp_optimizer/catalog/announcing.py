"""Tells whoever waits that the catalog changed. Called by the live catalog in the event loop; knows no change.

Whoever is told looks at all servers. Of five thousand that start one after the other, each would cost a look at five
thousand: so the more there are, the more changes are told at once.
"""

from __future__ import annotations

import asyncio

_EACH = 0.00005
_LONGEST = 0.25
"""Seconds between two announcements: for each server, and at most. With a dozen servers nobody notices."""


class Announcements:
    """The next change, for any number of waiters."""

    def __init__(self) -> None:
        self._news: asyncio.Event | None = None
        self._is_due = False
        self._told_at = 0.0
        self.told = 0
        """How often somebody was told."""

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    def tell(self, servers: int) -> None:
        """Something changed in a catalog of so many servers. All changes in one turn of the loop are told once."""
        if self._news is None or self._is_due:
            return
        self._is_due = True
        loop = asyncio.get_running_loop()
        pause = self._told_at + min(_EACH * servers, _LONGEST) - loop.time()
        if pause > 0:
            loop.call_later(pause, self._tell)
        else:
            loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._told_at = asyncio.get_running_loop().time()
        if self._news is not None:
            self.told += 1
            self._news.set()
            self._news = None
