"""Waits for servers that are starting, on behalf of a request that may mean one of them.

A first search or call often comes while servers start and the encoder loads. Denying what is about to exist would make
a model give up, so the request waits for a bounded time. Where the tools of a server are known from before, a search
finds them at once, and only a call of one waits. A server of which nothing is known delays nothing once it has been
starting for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import StillStarting

_PATIENCE = 8.0
"""Seconds that a request waits at most for servers of which it is not known whether they are meant."""

_CALL_PATIENCE = 30.0
"""Seconds that a call waits at most for the server of its tool."""

_NEW = 20.0
"""Seconds after which a server that is still starting is no longer waited for."""


class StartingServers:
    """The servers that a request waits for."""

    def __init__(
        self, catalog: LiveCatalog, patience: float = _PATIENCE, call_patience: float = _CALL_PATIENCE
    ) -> None:
        self._catalog = catalog
        self._patience = patience
        self._call_patience = call_patience

    async def until_up(self, server: str) -> None:
        """Wait until a server that is coming runs, with the tools that it lists now, or is down.

        Raises StillStarting.
        """
        await self._while(lambda snapshot: is_coming(snapshot, server), server)

    async def until_known(self, servers: Sequence[str]) -> None:
        """Wait until the tools of one of these are known, or it is down. Raises StillStarting."""
        await self._while(
            lambda snapshot: all(is_coming(snapshot, one) and one not in snapshot.expected for one in servers),
            servers[0],
        )

    async def _while(self, is_early: Callable[[Snapshot], bool], server: str) -> None:
        try:
            async with asyncio.timeout(self._call_patience):
                while is_early(self._catalog.snapshot):
                    await self._catalog.changed()
        except TimeoutError:
            since = self._catalog.snapshot.states[server].since
            raise StillStarting(server, time.time() - since) from None

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


def is_coming(snapshot: Snapshot, server: str) -> bool:
    """Whether a server is starting, or what it lists is just being read."""
    state = snapshot.states.get(server)
    if state is None:
        return False
    if state.is_coming or server in snapshot.expected:
        return True
    return state.status is ServerStatus.RUNNING and any(one.name == server for one in snapshot.missing())


def _is_beginning(snapshot: Snapshot) -> bool:
    if snapshot.encoder_is_loading:
        return True
    if not snapshot.is_starting:
        return False
    now = time.time()
    return any(not state.is_down and now - state.since < _NEW for state in snapshot.missing())
