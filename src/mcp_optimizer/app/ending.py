"""Ends parts, each under what is left of one deadline: one that fails or hangs is named, and keeps no other going."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

logger = logging.getLogger(__name__)

LEAST = 0.1
"""Minimum seconds for a part to end, even if another took all the time."""

End = Callable[[], Coroutine[Any, Any, None]]


class Ending:
    """What is to be ended, the last first. Ends once, however often it is asked to; whoever asks again waits for it."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._ends_at = 0.0

    def add(self, what: str, end: End) -> None:
        self._stack.push_async_callback(self._end, what, end)

    def first(self, stop: Callable[[], None]) -> None:
        """Done at once, before what was added so far is ended."""
        self._stack.callback(stop)

    async def all(self, seconds: float) -> None:
        """`seconds`: how long all of it may take. Whoever is cancelled meanwhile has begun to end the rest, too."""
        async with self._turn:
            self._ends_at = time.monotonic() + seconds
            await self._stack.aclose()

    async def _end(self, what: str, end: End) -> None:
        left = max(LEAST, self._ends_at - time.monotonic())
        task = asyncio.create_task(end())
        # Not a timeout around it: what does not end when it is told to may not end when it is cancelled, either.
        await asyncio.wait({task}, timeout=left)
        if not task.done():
            task.cancel()
            logger.error("Shutdown: %s did not end within %.1f s.", what, left)
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Shutdown: %s failed to end.", what, exc_info=error)


async def end_all(parts: Mapping[str, End], seconds: float) -> None:
    """End some parts, in their order. One that fails or takes too long is logged, and the others continue."""
    ending = Ending()
    for what, end in reversed(list(parts.items())):
        ending.add(what, end)
    await ending.all(seconds)
