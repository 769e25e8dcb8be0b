"""The first lists that clients ask for wait briefly for servers that are starting."""

from __future__ import annotations

import asyncio
import contextlib

from mcp_optimizer.catalog import LiveCatalog

FIRST_LISTS = 10.0
"""Seconds that the first lists wait for servers that are starting; later arrivals are announced as a change."""


class FirstStart:
    """Waits for the servers to start, the first time; later they may come and go."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self._is_over = False

    async def __call__(self) -> None:
        if self._is_over:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LISTS):
                while self._catalog.snapshot.is_starting:
                    await self._catalog.changed()
        self._is_over = True
