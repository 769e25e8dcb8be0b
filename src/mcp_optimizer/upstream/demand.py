"""Whether a server is needed: what starts one that rests, and what lets one rest. Used by its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

_LOOK = 60.0
"""Maximum seconds between two looks whether a server is still in use."""


class Demand:
    """The use of one server. One that never rests has an infinite `idle_timeout`."""

    def __init__(self, idle_timeout: float, in_use: Callable[[], bool]) -> None:
        """`in_use`: whether something depends on the session at this moment."""
        self._idle_timeout = idle_timeout
        self._in_use = in_use
        self._needed = asyncio.Event()
        self._adapted = asyncio.Event()
        self._used_at = time.monotonic()

    def adapt(self, idle_timeout: float) -> None:
        """Another time from now on."""
        self._idle_timeout = idle_timeout
        self._adapted.set()

    @property
    def is_needed(self) -> bool:
        return self._needed.is_set()

    def need(self) -> None:
        """Something needs the server: it is not to rest, or not any longer."""
        self._needed.set()
        self.use()

    def over(self) -> None:
        """Nothing needs the server; from now on, `need` is news."""
        self._needed.clear()

    def use(self) -> None:
        """The server was used now."""
        self._used_at = time.monotonic()

    async def arises(self) -> None:
        """Wait until something needs the server."""
        await self._needed.wait()

    async def ends(self) -> None:
        """Wait until nothing has needed the server for so long that it may rest; from then on, `need` is news."""
        self.use()
        while (left := self._used_at + self._idle_timeout - time.monotonic()) > 0:
            self._adapted.clear()
            # A server that never rests is not looked at, until its entry says another time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK) if left < math.inf else None):
                    await self._adapted.wait()
            if self._in_use():
                self.use()
        self._needed.clear()
