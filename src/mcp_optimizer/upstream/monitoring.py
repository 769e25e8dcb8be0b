"""Monitors a running server: checks that it still responds, and lists its tools again when they change.

Everything that a server sends is a sign of life, even a refusal. It counts as gone only after several checks in a row
fail with nothing heard in between; a server that works on a call may take its time. Used by supervisors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, ServerGone
from mcp_optimizer.upstream.session import UpstreamSession

logger = logging.getLogger(__name__)

_HEALTHY_AFTER = 60.0
"""Seconds a server must have run for its next restart pause to be short again."""


class RestartPauses:
    """Restart pauses that double from the first to the longest, in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def after(self, lived: float) -> float:
        """The pause after a run of so many seconds."""
        if lived > _HEALTHY_AFTER:
            self._next = self._first
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause


async def rest_before_restart(pause: float) -> None:
    """Sleep for a randomly varied pause, so that servers behind one broken network do not all restart at once."""
    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311


CHECK_INTERVAL = 15.0
"""Seconds between checks of an HTTP server, and for its response. A child process needs no checks: it exits."""

_SUSPICIOUS_INTERVAL = 0.5
"""Seconds between checks after an exchange has just broken."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
"""Maximum seconds between two listings of a server that keeps announcing changed tools."""


class CheckTrigger:
    """Triggers a check of a server before the next regular time."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    def raise_(self) -> None:
        self._raised.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a reason to check, or for the regular time."""
        try:
            async with asyncio.timeout(seconds):
                await self._raised.wait()
        except TimeoutError:
            pass
        self._raised.clear()


async def until_gone(session: UpstreamSession, suspicion: CheckTrigger, most: int) -> str:
    """Wait until `most` checks in a row have failed; returns why the server counts as gone."""
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
    """Whether the check may have reached the server, which may then just be busy."""
    return isinstance(error, ExchangeLost) and error.was_sent


class Relisting:
    """Lists the tools again when the server announces changes. A failure leaves the old list in place."""

    def __init__(self, server: str, timeout: float, pacer: Pacer | None = None) -> None:
        self._server = server
        self._timeout = timeout
        self._pacer = pacer or Pacer()
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()

    def changed(self, *, at_once: bool = False) -> None:
        """The list is out of date. `at_once`: skip the pause, because the user made the change, not the server."""
        self._changed.set()
        if at_once:
            self._hurry.set()

    async def run(self, session: UpstreamSession, listed: Callable[[Listing], None]) -> None:
        loop = asyncio.get_running_loop()
        pause, listed_at = _FIRST_PAUSE, 0.0
        while True:
            await self._changed.wait()
            # A server that keeps announcing changes is asked less and less often.
            since = loop.time() - listed_at
            pause = min(2 * pause, _LONGEST_PAUSE) if since < 2 * pause else _FIRST_PAUSE
            if since < pause:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause - since):
                        await self._hurry.wait()
            self._changed.clear()
            self._hurry.clear()
            listed_at = loop.time()
            try:
                listing = await session.list_tools(self._timeout, self._pacer)
            except (RpcError, ExchangeLost, TimeoutError) as error:
                kind = type(error).__name__
                logger.warning("Server %s reports changed tools but does not list them (%s).", self._server, kind)
                continue
            except ServerGone:
                return
            listed(listing)
