"""Short turns: a reader of a flood regularly lets other work run.

Reading data that is already there never waits, so it never yields to the event loop. Called where bytes become lines
and chunks become bodies; knows neither.
"""

from __future__ import annotations

import asyncio
import time

_TURN = 0.002
"""Seconds. A call needs some ten turns of the event loop, and each may be preceded by one of these."""


class Turns:
    """The turns of one reader."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + _TURN

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._ends

    async def next(self) -> None:
        await asyncio.sleep(0)
        self._ends = time.monotonic() + _TURN
