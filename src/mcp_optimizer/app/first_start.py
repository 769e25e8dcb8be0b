"""How long clients' first requests wait for servers that are starting: lists hardly, what means one server a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.domain.tools import ServerStatus

FIRST_LISTS = 10.0
"""Seconds that first requests wait for servers that are starting."""

_BRIEFLY = 0.2
"""Seconds that lists wait: many clients do nothing else before they have them. What comes later is announced."""


class FirstStart:
    """Waits for the servers to start, the first time; later they may come and go."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self._is_over = False
        self._were_listed = False
        self._were_tools_listed = False

    async def settled(self) -> None:
        """Until every server has started or failed: what is asked for may be on any of them."""
        if not self._is_over:
            await self._while(_is_starting, FIRST_LISTS)
            self._is_over = True

    async def lists(self) -> None:
        """Before a list of prompts or resources, which has those of the servers that run."""
        if not self._were_listed:
            await self._while(_is_starting, _BRIEFLY)
            self._were_listed = True

    async def tools(self) -> None:
        """Before a list of all tools. If none is known, not even from an earlier start, until there is one, because
        many clients never ask again.
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
