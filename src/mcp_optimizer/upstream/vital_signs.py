"""What is watched while a server runs: that it still answers, and that its list of tools is the newest.

A refusal is a sign of life, and so is anything else that it sends. Only checks that fail several times in a row, with
nothing heard meanwhile, mean that a server is gone; one that works on a call may take its time. For supervisors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mcp_optimizer.upstream.endings import ExchangeLost, RpcError, ServerGone
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.session import UpstreamSession

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 15.0
"""Seconds between checks of an HTTP server, and that it has to answer one; a child process tells by ending."""

_SUSPICIOUS_INTERVAL = 0.5
"""Seconds between checks when an exchange with it has just broken."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
"""Seconds between two listings of a server that keeps saying that its tools have changed."""


class Suspicion:
    """Whether there is reason to look now, and not at the next regular time, if a server is still there."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    def raise_(self) -> None:
        self._raised.set()

    async def wait(self, seconds: float) -> None:
        """Until somebody has reason to ask, or until it is time anyway."""
        try:
            async with asyncio.timeout(seconds):
                await self._raised.wait()
        except TimeoutError:
            pass
        self._raised.clear()


async def until_gone(session: UpstreamSession, suspicion: Suspicion, most: int) -> str:
    """Return why a server counts as gone, once `most` checks in a row have failed."""
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        await (asyncio.sleep(_SUSPICIOUS_INTERVAL) if failures else suspicion.wait(CHECK_INTERVAL))
        asked_at, was_working = loop.time(), session.is_working
        try:
            await session.check_alive(CHECK_INTERVAL)
        except (ExchangeLost, ServerGone) as error:
            if session.heard_at > asked_at:
                failures = 0
            elif not _was_reached(error) or not (was_working or session.is_working):
                failures += 1
            if failures >= most:
                return str(error)
        else:
            failures = 0


def _was_reached(error: ExchangeLost | ServerGone) -> bool:
    """Whether the check arrived: who takes long to answer may be busy, who cannot be reached is not."""
    return isinstance(error, ExchangeLost) and error.was_sent


class Relisting:
    """Lists the tools again when the server says that they have changed. What fails leaves the old list as it is."""

    def __init__(self, server: str, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def run(self, session: UpstreamSession, listed: Callable[[Listing], None]) -> None:
        loop = asyncio.get_running_loop()
        pause, listed_at = _FIRST_PAUSE, 0.0
        while True:
            await self._changed.wait()
            # A server that says so all the time is asked less and less often.
            since = loop.time() - listed_at
            pause = min(2 * pause, _LONGEST_PAUSE) if since < 2 * pause else _FIRST_PAUSE
            if since < pause:
                await asyncio.sleep(pause - since)
            self._changed.clear()
            listed_at = loop.time()
            try:
                listing = await session.list_tools(self._timeout)
            except (RpcError, ExchangeLost, TimeoutError) as error:
                kind = type(error).__name__
                logger.warning("Server %s reports changed tools but does not list them (%s).", self._server, kind)
                continue
            except ServerGone:
                return
            listed(listing)
