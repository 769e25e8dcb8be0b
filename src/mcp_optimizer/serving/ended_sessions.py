"""The sessions that their clients ended: no gateway opens them again, although their signed ids are still valid.

Kept in the database for as long as an id is valid; the latest are also in memory. While the database is unavailable,
only those in memory are known, and no request waits for it longer than a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.session_ids import SESSION_DAYS

if TYPE_CHECKING:
    from mcp_optimizer.db.gateways import GatewayRows

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
_MOST = 10_000
_MOST_UNWRITTEN = 100
_DAY_MS = 86_400_000


def _of_nobody(_is_ended: Callable[[str], bool]) -> None:
    """For when no sessions are open."""


async def _nowhere() -> GatewayRows | None:
    return None


class EndedSessions:
    """The ended sessions of all gateways. `stored` returns the database once open; `breaker` bounds the wait for it."""

    def __init__(
        self, stored: Callable[[], Awaitable[GatewayRows | None]] | None = None, breaker: Breaker | None = None
    ) -> None:
        self._stored = stored or _nowhere
        self._breaker = breaker or Breaker()
        self._latest: OrderedDict[str, None] = OrderedDict()
        self._tasks = BackgroundTasks(logger, "The end of a session could not be written")
        self._end: Callable[[Callable[[str], bool]], None] = _of_nobody
        self._open: Callable[[], list[str]] = list

    def over(self, sessions: Callable[[], list[str]], end: Callable[[Callable[[str], bool]], None]) -> None:
        """`sessions` returns the sessions that are open here; `end` ends those for which its predicate is true."""
        self._open, self._end = sessions, end

    def told(self, hashes: Sequence[str]) -> None:
        """Handle a report that other gateways ended these sessions; an empty list stands for unspecified ones."""
        if not hashes:
            self._tasks.spawn(self._look())
            return
        for name in hashes:
            self._remember(name)
        self._end(lambda session: _hash(session) in hashes)

    async def _look(self) -> None:
        try:
            stored, hashes = await self._stored(), [_hash(session) for session in self._open()]
            if stored is not None and (ended := await stored.ended_among(hashes)):
                self.told(sorted(ended))
        except CatalogError as error:
            logger.debug("Whether sessions were ended is not known: %s", error)

    def _remember(self, name: str) -> None:
        self._latest[name] = None
        if len(self._latest) > _MOST:
            self._latest.popitem(last=False)

    async def add(self, session: str) -> None:
        """Record that a client ends its session: before it gets its answer or, after a second, in the background."""
        name = _hash(session)
        self._remember(name)
        if len(self._tasks) < _MOST_UNWRITTEN:
            await asyncio.wait([self._tasks.spawn(self._write(name))], timeout=_PATIENCE)

    async def _write(self, name: str) -> None:
        now = time.time_ns() // 1_000_000
        try:
            if (stored := await self._stored()) is not None:
                await stored.end_session(name, now + SESSION_DAYS * _DAY_MS, now)
        except CatalogError as error:
            logger.warning("Other gateways may open a session again that its client ended: %s.", error)

    async def has(self, session: str) -> bool:
        name = _hash(session)
        if name in self._latest:
            return True

        async def ask() -> bool:
            stored = await self._stored()
            return stored is not None and await stored.is_ended(name)

        try:
            return await self._breaker.within(ask)
        except CatalogError:
            # A client that ended a session hardly waits for an answer in it; a client that uses one does.
            return False


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
