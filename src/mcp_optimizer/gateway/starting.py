"""Waits for servers that have just begun to start, on behalf of a request that may mean one of them.

A first search or call often comes while servers start and the encoder loads. Denying what is about to exist would make
a model give up, so the request waits for a bounded time. A server that has been starting for long delays nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mcp_optimizer.catalog import LiveCatalog, Snapshot

_PATIENCE = 8.0
"""Seconds that one request waits at most."""

_NEW = 20.0
"""Seconds after which a server that is still starting is no longer waited for."""


class StartingServers:
    """The servers that a request waits for."""

    def __init__(self, catalog: LiveCatalog, patience: float = _PATIENCE) -> None:
        self._catalog = catalog
        self._patience = patience

    async def wait(
        self, view: Callable[[], Awaitable[Snapshot]], is_enough: Callable[[Snapshot], Awaitable[bool]]
    ) -> bool:
        """Wait until what a request needs is there, or no server has just begun to start; whether it waited."""
        waited = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                before = self._catalog.snapshot
                while _is_beginning(seen := await view()) and not await is_enough(seen):
                    waited = True
                    # What arrived while this one was looked through would not be told again.
                    if self._catalog.snapshot is before:
                        await self._catalog.changed()
                    before = self._catalog.snapshot
        return waited


def _is_beginning(snapshot: Snapshot) -> bool:
    if snapshot.encoder_is_loading:
        return True
    if not snapshot.is_starting:
        return False
    now = time.time()
    return any(not state.status.has_failed and now - state.since < _NEW for state in snapshot.missing())
