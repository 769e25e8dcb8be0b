"""Sessions with a server that belong to one client: the only client of a gateway on stdio, or one of several.

A legacy server asks its client in the middle of a call, and over a shared session it would be unclear which client it
means. A client that can be asked, or that wants log messages, therefore gets its own session with each server it calls,
as it would have without a gateway; so does each client on stdio with a server that clients must not share. Own sessions
open on first use and close when the client leaves or stays silent. Called by supervisors; `session_choice` says who
gets one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.runtime.logs import frames
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.session import UpstreamSession

_FIRST_WORD = 5.0
"""Seconds that the start of a server waits for the one client on stdio to declare its capabilities."""


class OnlyClient:
    """The client of a gateway on stdio, or the first of those that are there, once it has introduced itself."""

    def __init__(self) -> None:
        self.link: ClientLink | None = None
        self._met = asyncio.Event()
        """Whether there has ever been one."""

    def client_connected(self, link: Callable[[], ClientLink]) -> None:
        """Note the client. `link` is called only the first time, because this runs for every request."""
        if self.link is None:
            self.link = link()
            self._met.set()

    def left(self, key: str) -> None:
        """Forget the client with this key. The next one that is heard of takes its place."""
        if self.link is not None and self.link.key == key:
            self.link = None

    async def known(self) -> ClientLink | None:
        """The client's link, at the start after a short wait. Clients introduce themselves immediately; None if it has
        not.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_WORD):
                await self._met.wait()
        return self.link


logger = logging.getLogger(__name__)

Open = Callable[[ClientLink], AbstractAsyncContextManager[UpstreamSession]]

_SILENT_FOR = 600.0
"""Seconds without a call after which a client's session is closed; its next call opens another."""
_SOONEST = 0.05
"""Minimum seconds between two looks at a session that works on a call."""


class _Own:
    """One client's session."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[UpstreamSession | None] = self._loop.create_future()
        self.leave = asyncio.Event()
        self._used_at = self._loop.time()

    @property
    def silent_for(self) -> float:
        """Seconds since the session was last used."""
        return self._loop.time() - self._used_at

    def use(self) -> None:
        self._used_at = self._loop.time()


class OwnSessions:
    """The clients' own sessions with one server."""

    def __init__(
        self,
        open_session: Open,
        most: int,
        expected: tuple[type[BaseException], ...],
        silent_for: Callable[[], float] | None = None,
        ended: Callable[[], None] = lambda: None,
        is_kept: Callable[[str], bool] = lambda _key: False,
    ) -> None:
        """`silent_for`: seconds without a call after which one closes, unless it `is_kept` for its client, by key.
        `ended` is called when one has.
        """
        self._is_kept = is_kept
        self._silent_for = silent_for or (lambda: _SILENT_FOR)
        self._ended = ended
        self._open = open_session
        self._most = most
        self._expected = expected
        self._tasks = BackgroundTasks(logger, "A client's own session failed")
        self._of: dict[str, _Own] = {}
        self._closing: set[_Own] = set()
        """Sessions no longer in use whose connection or child process still exists."""

    async def of(self, link: ClientLink, key: str) -> UpstreamSession | None:
        """This client's session, opened if necessary; None if there are too many or it cannot be opened."""
        own = self._of.get(key)
        if own is None:
            if len(self._of) + len(self._closing) >= self._most:
                return None
            own = self._of[key] = _Own()
            self._tasks.spawn(self._live(key, link.lasting, own))
        own.use()
        session = await asyncio.shield(own.opened)
        # The client may have left, or the session may have ended, while it was being opened.
        return session if self._of.get(key) is own else None

    def has(self, key: str) -> bool:
        """Whether this client has a session, or will in a moment."""
        return key in self._of

    def opened(self) -> list[UpstreamSession]:
        found = [own.opened.result() for own in self._of.values() if own.opened.done()]
        return [session for session in found if session is not None]

    def existing(self, key: str) -> UpstreamSession | None:
        own = self._of.get(key)
        return own.opened.result() if own is not None and own.opened.done() else None

    def leave(self, key: str) -> None:
        """Close the session of a client that has left."""
        if (own := self._of.get(key)) is not None:
            self._retire(key, own)
            own.leave.set()

    async def close(self) -> None:
        for key in list(self._of):
            self.leave(key)
        await self._tasks.settled()

    def _retire(self, key: str, own: _Own) -> None:
        """Stop handing out this session; the next call gets another."""
        if self._of.get(key) is own:
            del self._of[key]
            self._closing.add(own)

    async def _live(self, key: str, link: ClientLink, own: _Own) -> None:
        # Ended by an event and never cancelled, because ending a child process takes time.
        try:
            async with self._open(link) as session:
                own.opened.set_result(session)
                try:
                    await self._until_over(session, key, own)
                finally:
                    self._retire(key, own)
        except* self._expected as group:
            logger.debug("A client's own session with a server failed: %s", group.exceptions[0])
        except* Exception as group:  # noqa: BLE001 - whatever it is, it ends this session and no other
            logger.error("A client's own session failed by a fault of the gateway.\n%s", frames(group))
        finally:
            self._retire(key, own)
            self._closing.discard(own)
            if not own.opened.done():
                own.opened.set_result(None)
            self._ended()

    async def _until_over(self, session: UpstreamSession, key: str, own: _Own) -> None:
        over = {asyncio.create_task(own.leave.wait()), asyncio.create_task(session.wait_closed())}
        try:
            while True:
                if self._is_kept(key):
                    own.use()
                most = self._silent_for()
                look = min(max(most - own.silent_for, _SOONEST), _SILENT_FOR)
                done, _ = await asyncio.wait(over, timeout=look, return_when=asyncio.FIRST_COMPLETED)
                if done or (session.is_idle and own.silent_for >= most):
                    return
        finally:
            for task in over:
                task.cancel()
