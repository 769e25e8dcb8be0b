"""One supervisor's time in the pool: from the end of the one that had its name before, to the end of its own process.

So no server runs twice at once, however fast its entry changes: many hold a lock or a port. Called by the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import anyio
import anyio.abc

from mcp_optimizer.upstream.supervisor import Supervisor

logger = logging.getLogger(__name__)

_IN_ONE_TURN = 20


async def begin(serving: Iterable[Callable[[], Coroutine[Any, Any, None]]], tasks: anyio.abc.TaskGroup) -> None:
    """Begin to serve. Thousands in one turn of the event loop would let all else wait for a third of a second, and a
    hundred for a tenth of a second while other threads work.
    """
    for number, serve in enumerate(serving, 1):
        tasks.start_soon(serve)
        if number % _IN_ONE_TURN == 0:
            await asyncio.sleep(0)


class Term:
    """`serve` is a task of the pool; `end` lets its calls finish, then ends it and no other."""

    def __init__(self, server: Supervisor, pause: float, before: Term | None = None) -> None:
        """`pause`: seconds before a supervisor that failed by a fault of ours goes on."""
        self.server = server
        self._pause = pause
        self._before = before
        self._scope: anyio.CancelScope | None = None
        self._is_ending = False
        self.ended = asyncio.Event()

    async def serve(self) -> None:
        try:
            if self._before is not None:
                await self._before.ended.wait()
                self._before = None
            if self.server.can_run and not self._is_ending:
                # Ended from inside: cancelling a task from outside would interrupt the shielded end of its child
                # process. Made here, because a scope needs an event loop, and a library user may have none yet.
                with anyio.CancelScope() as self._scope:
                    await self._keep_alive()
        finally:
            self.ended.set()

    async def end(self, seconds: float) -> None:
        """Let the calls in progress finish, for so long; those that have not by then get an error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.server.admission.emptied()
        self.server.interrupt()
        self._is_ending = True
        if self._scope is not None:
            self._scope.cancel()
        await self.server.own.close()
        await self.ended.wait()

    async def _keep_alive(self) -> None:
        """A fault of ours in one server's loop must not reach the others, which share the pool's scope."""
        while True:
            try:
                await self.server.run()
            except Exception:
                logger.exception("Server %s: its supervisor failed; restarting it", self.server.state.name)
                await asyncio.sleep(self._pause)
