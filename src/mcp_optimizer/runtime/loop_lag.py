"""How late the event loop is: what everybody who is served by it waits in addition. Knows nothing of what it does."""

from __future__ import annotations

import asyncio
import time
from collections import deque

_EVERY = 0.5
"""Seconds between two looks."""
_REMEMBERED = 30
"""Looks that are remembered: 15 seconds, the time between two looks of most monitors."""


class LoopLag:
    """Looks at the clock now and then, and at how much later that was than it should have been."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = time.monotonic() + _EVERY
        self._handle = asyncio.get_running_loop().call_later(_EVERY, self._look)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    @property
    def longest(self) -> float:
        """Seconds of the latest that it was in the last 15 seconds, and is at this moment."""
        late_now = time.monotonic() - self._due if self._handle is not None else 0.0
        return max(0.0, late_now, *self._seen)

    def _look(self) -> None:
        self._seen.append(max(0.0, time.monotonic() - self._due))
        self.start()
