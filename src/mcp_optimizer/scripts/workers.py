"""The processes in which scripts run. Imports pydantic_monty on first use.

Every script gets a fresh interpreter in a worker that has nothing: no files, no network, no environment. A worker that
crashes or is killed ends one script, and another takes its place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.turns import ScriptTurn, ScriptTurns
from mcp_optimizer.scripts.worker_pool import WorkerPool

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

MISSING = (
    "Scripts need another package. Install it with: pip install 'mcp-optimizer-gateway[scripts]', or set scripts = "
    '"off".'
)

_DEEPEST = 300
"""Function calls of a script inside each other."""

_GRACE = 1.0
"""Seconds in which a worker ends a script itself before it is killed."""


def check_installed() -> None:
    """Raises ConfigurationError if scripts cannot be run here. Imports nothing."""
    from importlib.util import find_spec

    if find_spec("pydantic_monty") is None:
        raise ConfigurationError(MISSING)


class Workers:
    """A pool of workers, started with the first script."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = WorkerPool(self._made)
        self._turns = ScriptTurns(limits.script_workers)

    def turn(self, caller: str) -> ScriptTurn:
        """To be entered for a session."""
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
            # A call takes up to two; the rest is for names that do not exist and are asked for.
            "max_suspensions": 3 * self._limits.script_calls + 1_000,
        }

    def _made(self) -> AsyncMonty:
        try:
            import pydantic_monty
        except ImportError:
            raise ConfigurationError(MISSING) from None
        # Of a limit whose name it does not know, the library says nothing.
        unknown = self._resource_limits().keys() - pydantic_monty.ResourceLimits.__annotations__.keys()
        if unknown:
            raise ConfigurationError(f"This pydantic-monty does not know the limits {sorted(unknown)}. {MISSING}")
        return pydantic_monty.AsyncMonty(
            min_processes=1, max_processes=self._turns.most, feed_duration_limit_grace=_GRACE
        )

    async def close(self) -> None:
        """End all workers."""
        await self._pool.close()
