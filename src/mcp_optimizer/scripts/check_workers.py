"""The processes in which scripts are type-checked, apart from those in which they run. Imports pydantic_monty on first
use.

A check makes a worker four times as large as a script does, and one that takes too long costs a worker.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.worker_pool import WorkerPool

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty

_MOST = 2
_CHECKS_PER_WORKER = 500
"""Checks after which a worker is replaced, whatever it remembers of them."""

_MOST_REMEMBERED = 200
_GRACE = 1.0
"""Seconds after which a worker that does not end is killed."""


@dataclass(frozen=True)
class CheckVerdict:
    """What a worker said of a text: nothing, if all is well or it could not say."""

    diagnostics: str = ""
    """Of the type checker, as JSON."""
    refused: str = ""
    """Why the interpreter does not read it at all, and on which line."""
    line: int = 1
    is_made: bool = True
    """Whether the worker came to an end."""


class CheckWorkers:
    """A pool of workers, started with the first check."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = WorkerPool(self._made)
        self._free = asyncio.Semaphore(_MOST)
        self._known: OrderedDict[bytes, CheckVerdict] = OrderedDict()

    async def verdict(self, text: str, stubs: str) -> CheckVerdict:
        """Check a text whose first statement waits for us; it is left there, and nothing after it runs.

        The same text with the same stubs is checked once: scripts are run again, with other data. What could not be
        checked is tried again.
        """
        key = hashlib.sha256(f"{stubs}\0{text}".encode("utf-8", "replace")).digest()
        if (known := self._known.get(key)) is not None:
            return known
        verdict = await self._checked(text, stubs)
        if verdict.is_made:
            self._known[key] = verdict
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return verdict

    async def _checked(self, text: str, stubs: str) -> CheckVerdict:
        import pydantic_monty

        async with self._free:
            checked = self._pool.session(type_check=True, type_check_stubs=stubs, type_check_format="json")
            try:
                async with asyncio.timeout(self._limits.script_check_seconds), checked as session:
                    await session.feed_start(text)
            except pydantic_monty.MontyTypingError as error:
                return CheckVerdict(diagnostics=error.display())
            except (pydantic_monty.MontySyntaxError, pydantic_monty.MontyRuntimeError) as error:
                frames = error.traceback()
                return CheckVerdict(refused=error.display("msg"), line=frames[-1].line if frames else 1)
            except (TimeoutError, InvalidRequest, pydantic_monty.MontyError, RuntimeError, OSError):
                return CheckVerdict(is_made=False)
        return CheckVerdict()

    def _made(self) -> AsyncMonty:
        from pydantic_monty import AsyncMonty

        return AsyncMonty(
            min_processes=0,
            max_processes=_MOST,
            max_checkouts_per_worker=_CHECKS_PER_WORKER,
            request_timeout=self._limits.script_check_seconds + _GRACE,
        )

    async def close(self) -> None:
        """End all workers."""
        await self._pool.close()
