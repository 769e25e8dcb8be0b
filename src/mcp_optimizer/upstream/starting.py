"""Which servers are starting, and when none is any more. Told by the pool of every state, at a cost of that one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.upstream.state import UpstreamState


class Starting:
    """The servers of a pool that are starting."""

    def __init__(self, states: Iterable[UpstreamState]) -> None:
        self._names: set[str] = set()
        self._is_over = asyncio.Event()
        self._is_over.set()
        for state in states:
            self.changed(state)

    def changed(self, state: UpstreamState) -> None:
        if state.status is ServerStatus.STARTING:
            self._names.add(state.name)
            self._is_over.clear()
        else:
            self.gone(state.name)

    def gone(self, server: str) -> None:
        self._names.discard(server)
        if not self._names:
            self._is_over.set()

    async def over(self, timeout: float) -> None:
        """Wait until no server is starting any more, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                # Woken, others may have begun to start.
                while self._names:
                    await self._is_over.wait()
