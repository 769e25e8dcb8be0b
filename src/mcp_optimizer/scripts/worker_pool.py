"""Processes of the scripts' interpreter, started when the first is needed. Called by `workers`.

A process that cannot be started, or dies before it was told anything, is replaced: nothing was done in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import InvalidRequest

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_AFTER_THE_END = 0.05
"""Seconds after the last worker ended. Threads of the library end a little later, and one that does so while the
interpreter ends aborts the process.
"""


class WorkerPool:
    """A pool of workers; `make` says how many, and imports the library."""

    def __init__(self, make: Callable[[], AsyncMonty]) -> None:
        self._make = make
        self._pool: AsyncMonty | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[AsyncMontySession]:
        """A fresh interpreter. Raises InvalidRequest if no worker can be started."""
        async with AsyncExitStack() as entered:
            yield await self._enter(entered, options)

    async def _enter(self, entered: AsyncExitStack, options: dict[str, Any]) -> AsyncMontySession:
        for attempt in range(_ATTEMPTS):
            try:
                pool = await self._opened()
                return await entered.enter_async_context(pool.checkout(**options))
            except _not_started() as error:
                logger.warning("A worker for scripts could not be started, attempt %d: %s", attempt + 1, error)
        raise InvalidRequest(
            "No process could be started for the script, and nothing was called; the gateway's log says why. Try again "
            "later, or call the tools one by one with call_tool."
        )

    async def _opened(self) -> AsyncMonty:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._make().__aenter__()
            return self._pool

    async def close(self) -> None:
        """End all workers."""
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.__aexit__(None, None, None)
                await asyncio.sleep(_AFTER_THE_END)


def _not_started() -> tuple[type[Exception], ...]:
    """How the library says that a process did not start; read when something was raised, so that nothing is imported
    before.
    """
    from pydantic_monty import MontyCrashedError

    return (RuntimeError, OSError, MontyCrashedError)
