"""The other gateways of an installation: who lives, and where each is reached. This one says that it lives, too.

Kept in the database that they share. While it cannot be read, those that were known are. Called by what forwards
requests to other gateways; knows no request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from mcp_optimizer.domain.gateways import PeerGateway
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.gateways import GatewayRows

logger = logging.getLogger(__name__)

_BEAT = 10.0
"""Seconds between two signs of life."""

_SILENT_MS = 45_000
"""Milliseconds without a sign of life after which a gateway counts as gone."""

_PATIENCE = 1.0
_READ_AGAIN = 1.0
"""Seconds between two reads, whatever names of gateways clients send."""

_LAST_WORDS = 2.0


class Peers:
    """The gateways on one database, `own` being the id of this one. `stored` returns the database once it is open."""

    def __init__(self, own: str, version: str, stored: Callable[[], Awaitable[GatewayRows | None]]) -> None:
        self.own = own
        self._version = version
        self._stored = stored
        self._known: Mapping[str, str] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._is_written = False
        self._tasks = BackgroundTasks(logger, "Other gateways are not told any more that this one lives")

    def join(self, address: str) -> None:
        """Say from now on that this gateway lives, and is reached at this address."""
        one = PeerGateway(self.own, address, self._version, _now())
        self._tasks.spawn(self._beating(one), name="sign of life")

    async def leave(self) -> None:
        """This gateway stops."""
        await self._tasks.close()
        if not self._is_written:
            return
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if (stored := await self._stored()) is not None:
                    await stored.leave(self.own)
        except (CatalogError, TimeoutError) as error:
            logger.debug("Other gateways were not told that this one stops: %s", error)

    async def address(self, gateway: str) -> str:
        """Where a gateway is reached; empty if it is not known to live."""
        if gateway not in self._known:
            await self._read()
        return self._known.get(gateway, "")

    async def others(self) -> Mapping[str, str]:
        """The addresses of all others, by their ids."""
        await self._read()
        return {name: address for name, address in self._known.items() if name != self.own}

    async def _read(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < _READ_AGAIN:
                return
            self._read_at = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE):
                    if (stored := await self._stored()) is not None:
                        living = await stored.living(_now() - _SILENT_MS)
                        self._known = {one.id: one.address for one in living}
            except (CatalogError, TimeoutError) as error:
                logger.debug("Other gateways cannot be read: %s", error)

    async def _beating(self, one: PeerGateway) -> None:
        while True:
            try:
                if (stored := await self._stored()) is not None:
                    await stored.seen(one, _now())
                    self._is_written = True
            except CatalogError as error:
                logger.debug("This gateway could not say that it lives: %s", error)
            await asyncio.sleep(_BEAT)


def _now() -> int:
    return time.time_ns() // 1_000_000
