"""The processes in which scripts run, started for the first script. Imports pydantic_monty on first use.

Every script gets a fresh interpreter in a worker without files, network or environment. A worker that crashes or is
killed ends one script and is replaced. A process that cannot be started, or dies before it received anything, is
replaced without ending the script, because nothing ran in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import ConfigurationError, InvalidRequest
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.scheduling import ScriptTurn, ScriptTurns

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_AFTER_THE_END = 0.05
"""Seconds to wait after the last worker ended. The library's threads end a little later, and one that ends during the
interpreter's shutdown aborts the process.
"""


class WorkerPool:
    """A pool of workers; `make` sets their number and imports the library."""

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
        """Ends all workers."""
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.__aexit__(None, None, None)
                await asyncio.sleep(_AFTER_THE_END)


def _not_started() -> tuple[type[Exception], ...]:
    """The library's exceptions for a process that did not start; looked up only after one was raised, so that nothing
    is imported before.
    """
    from pydantic_monty import MontyCrashedError

    return (RuntimeError, OSError, MontyCrashedError)


MISSING = (
    "Scripts need another package. Install it with: pip install 'mcp-optimizer-gateway[scripts]', or set scripts = "
    '"off".'
)

_DEEPEST = 300
"""Nested function calls that a script may make."""

_GRACE = 1.0
"""Seconds that a worker has to end a script itself before it is killed."""


def is_installed() -> bool:
    """Whether scripts can run on this machine. Imports nothing."""
    from importlib.util import find_spec

    return find_spec("pydantic_monty") is not None


def check_installed() -> None:
    """Raises ConfigurationError if scripts cannot run on this machine."""
    if not is_installed():
        raise ConfigurationError(MISSING)


class Workers:
    """A pool of workers, started with the first script."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = WorkerPool(self._made)
        self._turns = ScriptTurns(limits.script_workers)

    def turn(self, caller: str) -> ScriptTurn:
        """A turn, to be entered before a session."""
        return self._turns.of(caller)

    @asynccontextmanager
    async def session(self, turn: ScriptTurn) -> AsyncIterator[AsyncMontySession]:
        """A fresh interpreter for one script. Raises InvalidRequest if none becomes free."""
        async with turn, self._pool.session(script_name="script", limits=self._resource_limits()) as session:
            yield session

    def _resource_limits(self) -> Any:
        return {
            "max_feed_duration_secs": self._limits.script_cpu_seconds,
            "max_memory": self._limits.script_memory,
            "max_recursion_depth": _DEEPEST,
            # A call takes up to two suspensions; the rest is for undefined names, which the interpreter looks up.
            "max_suspensions": 3 * self._limits.script_calls + 1_000,
        }

    def _made(self) -> AsyncMonty:
        try:
            import pydantic_monty
        except ImportError:
            raise ConfigurationError(MISSING) from None
        # The library silently ignores a limit whose name it does not know.
        unknown = self._resource_limits().keys() - pydantic_monty.ResourceLimits.__annotations__.keys()
        if unknown:
            raise ConfigurationError(f"This pydantic-monty does not know the limits {sorted(unknown)}. {MISSING}")
        return pydantic_monty.AsyncMonty(
            min_processes=1, max_processes=self._turns.most, feed_duration_limit_grace=_GRACE
        )

    async def close(self) -> None:
        """Ends all workers."""
        await self._pool.close()
