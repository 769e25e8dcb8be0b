"""Ends streams whose caller is no longer let in: its key was revoked, or its token has expired.

A stream is opened once and may last for days, so whoever opened it is looked at again now and then. Called by the gate
over HTTP; knows neither keys nor tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_SECONDS = 5.0


class LastingStreams:
    """The streams of callers that had to prove who they are."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """`seconds`: between two looks at a caller."""
        self._seconds = seconds
        self._watches = BackgroundTasks(logger, "Cannot look at the caller of a stream")

    async def run(self, stream: Awaitable[None], is_admitted: Callable[[], Awaitable[bool]]) -> None:
        """The stream, to its end or to that of its caller's credential."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                watch = self._watches.spawn(self._watch(limit, is_admitted))
                try:
                    await stream
                finally:
                    watch.cancel()
        except TimeoutError:
            if not limit.expired():
                raise

    async def _watch(self, limit: asyncio.Timeout, is_admitted: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            if not await is_admitted():
                limit.reschedule(asyncio.get_running_loop().time())
                return
