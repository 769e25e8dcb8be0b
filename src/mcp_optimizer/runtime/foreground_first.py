"""Defers background writes while foreground work runs.

Both would share one interpreter, and a waiting caller would wait for both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

_PATIENCE = 10.0
_BEGIN = 0.05
"""Seconds within which foreground work starts after a change."""


class ForegroundFirst:
    """Tracks foreground work and lets background work wait for a pause in it."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._working = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Held while foreground work runs."""
        self._working += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._quiet.set()

    async def wait(self) -> None:
        """Wait until no foreground work runs, up to a maximum time."""
        await asyncio.sleep(_BEGIN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._quiet.wait()
