"""The one client of a gateway on stdio, and its capabilities once it declares them. Called by supervisors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from mcp_optimizer.domain.caller import ClientLink

_FIRST_WORD = 5.0
"""Seconds that a server waits for the one client on stdio to declare its capabilities."""


class OnlyClient:
    """The client of a gateway on stdio, once it has introduced itself."""

    def __init__(self) -> None:
        self.link: ClientLink | None = None
        self._met = asyncio.Event()

    def client_connected(self, link: Callable[[], ClientLink]) -> None:
        """The link is made only for the first, because every request comes here."""
        if self.link is None:
            self.link = link()
            self._met.set()

    async def known(self) -> ClientLink | None:
        """Clients speak first, immediately; one that does not is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_WORD):
                await self._met.wait()
        return self.link
