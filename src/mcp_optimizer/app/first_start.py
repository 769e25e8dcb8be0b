"""How long clients' first requests wait for starting servers: lists briefly, requests that need one server longer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.gateway.servers import Own, StartingServers

FIRST_LISTS = 10.0
"""Seconds that first requests wait for servers that are starting."""

_LISTS = 2.0
"""Seconds that lists of prompts and resources wait, counted from the first, for servers that are new to the catalog:
many clients do nothing else before they have them, and never ask again. Later additions are announced.
"""

_DATABASE = 1.0
"""Seconds of these for the database."""

_BRIEFLY = 0.2
"""Seconds that lists of tools wait for more once some are known."""


async def nobody(_caller: Caller) -> None:
    """For a gateway whose callers have no servers of their own."""


class FirstStart:
    """Waits for the first start of the servers; later starts and stops do not matter."""

    def __init__(
        self,
        catalog: LiveCatalog,
        wake: Callable[[str, Caller], None],
        own: Own | None = None,
        arrived: Callable[[Caller], Awaitable[None]] = nobody,
    ) -> None:
        """`own` has a caller's own servers, which `arrived` starts."""
        self._own: Own = own or (lambda snapshot, _caller: snapshot)
        self._arrived = arrived
        self._catalog = catalog
        self._is_over = False
        self._starting = StartingServers(catalog, wake, own=own)
        self._lists_end: float | None = None
        self._were_tools_listed = False

    async def settled(self) -> None:
        """Wait until every server has started or failed: any of them may have what the request needs."""
        if not self._is_over:
            await self._while(_is_starting, FIRST_LISTS)
            self._is_over = True

    async def own(self, caller: Caller) -> None:
        """Note that a caller has arrived, and wait until those of its own servers that have just begun to start are
        up or down.
        """
        await self._arrived(caller)

        def are_starting(snapshot: Snapshot) -> bool:
            seen, now = self._own(snapshot, caller), time.time()
            own = (seen.states[name] for name in seen.own)
            return any(one.status is ServerStatus.STARTING and now - one.since < FIRST_LISTS for one in own)

        await self._while(are_starting, FIRST_LISTS)

    async def until_up(self, server: str, caller: Caller = LOCAL) -> None:
        """Wait until this server, which the request needs, is up or down. Raises StillStarting."""
        await self._starting.until_up(server, caller)

    async def lists(self, is_early: Callable[[], bool], recalled: Callable[[], Awaitable[None]]) -> float | None:
        """Before a list of prompts or resources: wait until each server's last lists are known, and until servers
        without any have started or failed. Returns the seconds left, or None once the wait is over.
        """
        now = asyncio.get_running_loop().time
        self._lists_end = self._lists_end or now() + _LISTS
        if (left := self._lists_end - now()) <= 0:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left, _DATABASE)):
                await recalled()
        await self._while(lambda _now: is_early(), self._lists_end - now())
        return max(self._lists_end - now(), 0.0)

    async def tools(self) -> None:
        """Before a list of all tools: if none is known, not even from an earlier start, wait for some, because many
        clients never ask again.
        """
        if not self._were_tools_listed:
            await self._while(lambda now: now.is_starting and not now.has_tools, FIRST_LISTS)
            await self._while(lambda now: now.is_starting, _BRIEFLY)
            self._were_tools_listed = True

    async def _while(self, is_early: Callable[[Snapshot], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while is_early(self._catalog.snapshot):
                    await self._catalog.changed()


def _is_starting(snapshot: Snapshot) -> bool:
    return snapshot.is_starting or any(state.status is ServerStatus.STARTING for state in snapshot.states.values())
