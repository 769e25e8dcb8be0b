"""The pauses between a server's restarts: longer after each failure, short again once it has run for a while."""

from __future__ import annotations

import asyncio
import random

_HEALTHY_AFTER = 60.0
"""Seconds a server must have run before its restart pause is short again."""


class Pauses:
    """From the first pause to the longest, in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def after(self, lived: float) -> float:
        """The pause after a life of so many seconds."""
        if lived > _HEALTHY_AFTER:
            self._next = self._first
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause


async def rest(pause: float) -> None:
    """Spread out, so that ten servers behind one broken network do not all come back at the same moment."""
    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311
