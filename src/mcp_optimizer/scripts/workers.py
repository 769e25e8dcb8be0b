"""The processes in which scripts run. Imports pydantic_monty on first use.

Every script gets a fresh interpreter in a worker that has nothing: no files, no network, no environment. A worker that
crashes or is killed ends one script, and another takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import ConfigurationError, InvalidRequest
from mcp_optimizer.limits import Limits

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

logger = logging.getLogger(__name__)

MISSING = (
    "Scripts need another package. Install it with: pip install 'mcp-optimizer-gateway[scripts]', or set scripts = "
    '"off".'
)

_PATIENCE = 10.0
"""Seconds that a script waits for a worker."""

_DEEPEST = 300
"""Function calls of a script inside each other."""

_GRACE = 1.0
"""Seconds in which a worker ends a script itself before it is killed."""

_AFTER_THE_END = 0.05
"""Seconds after the last worker ended. Threads of the library end a little later, and one that does so while the
interpreter ends aborts the process.
"""


def check_installed() -> None:
    """Raises ConfigurationError if scripts cannot be run here. Imports nothing."""
    from importlib.util import find_spec

    if find_spec("pydantic_monty") is None:
        raise ConfigurationError(MISSING)


class Workers:
    """A pool of workers, started with the first script."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool: AsyncMonty | None = None
        self._opening = asyncio.Lock()
        self._free = asyncio.Semaphore(limits.script_workers)
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def session(self, caller: str) -> AsyncIterator[AsyncMontySession]:
        """A fresh interpreter for one script. Raises InvalidRequest if none becomes free."""
        async with self._turn(caller):
            pool = await self._opened()
            async with pool.checkout(script_name="script", limits=self._resource_limits()) as session:
                yield session

    @asynccontextmanager
    async def _turn(self, caller: str) -> AsyncIterator[None]:
        """One of the scripts that run at a time. Whoever starts many leaves a worker for others."""
        share = self._shares.setdefault(caller, _Share(max(1, self._limits.script_workers - 1)))
        share.join()
        async with AsyncExitStack() as taken:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await taken.enter_async_context(share.free)
                    await taken.enter_async_context(self._free)
            except TimeoutError:
                raise InvalidRequest("Too many scripts are running at a time. Try again later.") from None
            finally:
                taken.callback(self._leave, caller, share)
            yield

    def _leave(self, caller: str, share: _Share) -> None:
        if share.leave():
            del self._shares[caller]

    def _resource_limits(self) -> Any:
        return {
            "max_feed_duration_secs": self._limits.script_cpu_seconds,
            "max_memory": self._limits.script_memory,
            "max_recursion_depth": _DEEPEST,
            # A call takes up to two; the rest is for names that do not exist and are asked for.
            "max_suspensions": 3 * self._limits.script_calls + 1_000,
        }

    async def _opened(self) -> AsyncMonty:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._started()
            return self._pool

    async def _started(self) -> AsyncMonty:
        try:
            import pydantic_monty
        except ImportError:
            raise ConfigurationError(MISSING) from None
        # Of a limit whose name it does not know, the library says nothing.
        unknown = self._resource_limits().keys() - pydantic_monty.ResourceLimits.__annotations__.keys()
        if unknown:
            raise ConfigurationError(f"This pydantic-monty does not know the limits {sorted(unknown)}. {MISSING}")
        pool = pydantic_monty.AsyncMonty(
            min_processes=1, max_processes=self._limits.script_workers, feed_duration_limit_grace=_GRACE
        )
        return await pool.__aenter__()

    async def close(self) -> None:
        """End all workers."""
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.__aexit__(None, None, None)
                await asyncio.sleep(_AFTER_THE_END)


class _Share:
    """The workers that one caller may use at a time, and how many of its scripts want one."""

    def __init__(self, most: int) -> None:
        self.free = asyncio.Semaphore(most)
        self._users = 0

    def join(self) -> None:
        """One more script of this caller."""
        self._users += 1

    def leave(self) -> bool:
        """One script less; says whether it was the last."""
        self._users -= 1
        return not self._users
