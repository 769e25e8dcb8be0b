"""Runs supervisors as tasks of the pool: a few starts in each iteration of the event loop, and each ends by itself.

Called by the pool. Knows no session and no call.
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

_STARTS_IN_ONE_TURN = 20


async def begin_serving(serving: Iterable[Callable[[], Coroutine[Any, Any, None]]], tasks: anyio.abc.TaskGroup) -> None:
    """Start these tasks, a few per iteration of the event loop. Starting thousands at once would block everything else
    for a third of a second, and a hundred for a tenth of a second while other threads work.
    """
    for number, serve in enumerate(serving, 1):
        tasks.start_soon(serve)
        if number % _STARTS_IN_ONE_TURN == 0:
            await asyncio.sleep(0)


class ServerLifetime:
    """One server from its start to its end. `serve` runs as a task of the pool; `end` lets its calls finish, then ends
    only this server.
    """

    def __init__(
        self, server: Supervisor, pause: float, before: ServerLifetime | None = None, *, is_face: bool = False
    ) -> None:
        """`pause`: seconds before a supervisor that failed because of our own bug is restarted. `before`: the server to
        wait for. `is_face`: no session is opened; callers have servers of their own.
        """
        self.server = server
        self.is_face = is_face
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
                # Ended through this scope: cancelling the task from outside would interrupt the shielded end of its
                # child process. Created here, because a scope needs an event loop, which may not exist before.
                with anyio.CancelScope() as self._scope:
                    await self._keep_alive()
        finally:
            self.ended.set()

    async def end(self, seconds: float) -> None:
        """End the server after its calls in progress; calls that take longer than `seconds` get an error."""
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
        """Run the supervisor, and restart it after a bug of ours, which must not reach other servers of the pool."""
        while True:
            try:
                await (self.server.show_only() if self.is_face else self.server.run())
            except Exception:
                logger.exception("Server %s: its supervisor failed; restarting it", self.server.state.name)
                await asyncio.sleep(self._pause)
