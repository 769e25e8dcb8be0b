"""Bounds how long a request waits for the database: a second, and not at all while it is known not to answer.

Used for all database work that a request waits for. Slower work is not cancelled, because a connection that is
cancelled in the middle must be closed, which waits for the database too; only the request stops waiting. Knows no
queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

T = TypeVar("T")

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a request waits for the database."""

_LOOKS = 20
"""How many steps the wait is divided into. A step that ends late counts as one step: then the gateway's own event loop
was busy, and an answer of the database may not have been received yet.
"""

_START_PATIENCE = 10.0
"""Seconds that a request waits for the first attempt to open the database, which loads libraries and may migrate."""

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
"""Seconds between two probes of a database that does not answer."""

_AWAY = "the database does not answer"


async def _nothing() -> None:
    """The default for both: without a probe, the next request is the probe; without `opened`, there is no wait."""


class Breaker:
    """Lets requests use the database only while it answers. `probe` raises a CatalogError if it does not; `opened`
    returns when the first attempt to open it is over.
    """

    def __init__(
        self,
        probe: Callable[[], Awaitable[None]] = _nothing,
        patience: float = PATIENCE,
        opened: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._probe = probe
        self._opened = opened
        self._patience = patience
        self._is_open = False
        self._work = BackgroundTasks(logger, "An abandoned request to the database failed", (CatalogError,))
        self._probing = BackgroundTasks(logger, "The database is not looked at any more")

    @property
    def is_open(self) -> bool:
        """Whether the database failed to answer in time and has not answered a probe since."""
        return self._is_open

    async def within(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work; raises CatalogError if it fails, takes too long, or the breaker is open."""
        if self._is_open:
            raise CatalogError(_AWAY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_PATIENCE):
                await self._opened()
        task = self._work.spawn(work())
        for _ in range(_LOOKS):
            await asyncio.wait({task}, timeout=self._patience / _LOOKS)
            if task.done():
                return task.result()
        if not self._is_open:
            self._is_open = True
            logger.warning(
                "The database did not answer within %g s. Requests do not wait for it until it does.", self._patience
            )
            self._probing.spawn(self._probe_until_it_answers(), name="probe of the database")
        raise CatalogError(f"{_AWAY} within {self._patience:g} s")

    async def begun(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for writes that must be made: the work is always started, and continues after the request stops
        waiting.
        """
        if not self._is_open:
            return await self.within(work)
        self._work.spawn(work())
        raise CatalogError(_AWAY)

    async def close(self) -> None:
        """Wait briefly for work in progress, because a connection cancelled while it is being opened is lost."""
        self._probing.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._work.settled(), self._patience)
        self._work.cancel()

    async def _probe_until_it_answers(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                await self._probe()
            except CatalogError as error:
                logger.debug("The database does not answer: %s", error)
            else:
                break
        self._is_open = False
        logger.warning("The database answers again.")
