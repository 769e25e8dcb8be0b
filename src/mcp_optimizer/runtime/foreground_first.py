"""Lets what can wait go second: while something is made that somebody waits for, nothing is written for later.

Both would take turns on one interpreter, and whoever waits would wait for both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

_PATIENCE = 10.0
_BEGIN = 0.05
"""Seconds in which whoever has heard the same news begins to work."""


class ForegroundFirst:
    """Work that somebody waits for, and the times between."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._working = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """To be held while something is made that somebody waits for."""
        self._working += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._quiet.set()

    async def wait(self) -> None:
        """Until nobody works, or for as long as it is worth."""
        await asyncio.sleep(_BEGIN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._quiet.wait()
