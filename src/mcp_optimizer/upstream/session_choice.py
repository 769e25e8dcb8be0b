"""Which session with a server carries a client's calls: the first, which opens when the server starts, or its own.

Over HTTP, the first session is nobody's, and a client that a legacy server could not tell from others gets its own. On
a gateway that clients on stdio join and leave, the first session belongs to the client for which it opens, if that one
needs a session of its own, so that a client alone never has two. It ends when its client leaves. Called by supervisors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio

from mcp_optimizer.config.serverfile.spec import ServerSpec, Sharing
from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.errors import ServerUnavailable, UpstreamError
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.logs import frames
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.questions import asked_by, can_be_asked
from mcp_optimizer.upstream.session import UpstreamSession
from mcp_optimizer.upstream.state import PoolOptions, ServerSessions

logger = logging.getLogger(__name__)


# Sessions with a server that belong to one client: the only client of a gateway on stdio, or one of several. A legacy
# server asks its client in the middle of a call, and over a shared session it would be unclear which client it means.
# A client that can be asked, or that wants log messages, therefore gets its own session with each server it calls, as
# it would have without a gateway; so does each client on stdio with a server that clients must not share. Own
# sessions open on first use and close when the client leaves or stays silent.

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


CLIENT_LEFT = "its client has left"
"""Why a session ended, for people."""


class FirstSession:
    """Whose the first session is, on a gateway that clients join and leave."""

    def __init__(self) -> None:
        self.owner: ClientLink | None = None
        self.is_over = asyncio.Event()
        """Whether its owner has left, so that it has to end."""
        self._is_open = False
        """Whether it is open, or being opened."""
        self._is_unused = False

    def is_of(self, key: str) -> bool:
        return self.owner is not None and self.owner.key == key

    def claim(self, link: ClientLink, session: UpstreamSession | None) -> None:
        """Make it this client's, unless it was opened for another client, or used."""
        if not self._is_open:
            self.owner = self.owner or link.lasting
        elif session is not None and self._is_unused and self._would_suit(link, session):
            self.owner = asked_by(link.lasting, session.name)
            session.own(self.owner)

    def _would_suit(self, link: ClientLink, session: UpstreamSession) -> bool:
        """Whether the session is what it would be if it had been opened for this client."""
        if self.owner is not None and self.owner.capabilities:
            return False
        return (session.is_modern and link.is_modern) or (not link.capabilities and link.log_level is None)

    def opening(self) -> ClientLink | None:
        """It is being opened now; returns the client for which it is."""
        self._is_open = self._is_unused = True
        self.is_over.clear()
        return self.owner

    def used(self) -> None:
        """Its server may have state from now on."""
        self._is_unused = False

    def released(self) -> None:
        """It belongs to no client any more."""
        self.owner = None

    def left(self, key: str) -> bool:
        """Release it if this client has left; returns whether it has to end."""
        if not self.is_of(key):
            return False
        self.owner = None
        if self._is_open:
            self.is_over.set()
        return self._is_open

    async def ends(self, watching: anyio.CancelScope) -> None:
        """Cancel what watches over the session when its owner has left."""
        await self.is_over.wait()
        watching.cancel()

    def closed(self) -> None:
        """It has ended, or is ending."""
        self._is_open = False


class WatchedResources:
    """The resources of one server that clients watch, whether or not it runs: for each client, if each has a session
    that no other client has, else for all together, under no key.
    """

    def __init__(self, before: WatchedResources | None) -> None:
        """`before`: those of the server that had the same name."""
        self._by: dict[str, set[str]] = {"": set(before.by("") if before is not None else ())}

    def by(self, *keys: str) -> set[str]:
        return set().union(*(self._by.get(key, ()) for key in keys))

    def has_of(self, *keys: str) -> bool:
        return any(self._by.get(key) for key in keys)

    async def begin(self, uri: str, session: UpstreamSession, timeout: float, key: str) -> None:
        await session.watch_resource(uri, timeout)
        self._by.setdefault(key, set()).add(uri)

    async def end(self, uri: str, session: UpstreamSession | None, timeout: float, key: str) -> None:
        self._by.get(key, set()).discard(uri)
        if session is not None:
            await session.unwatch_resource(uri, timeout)

    async def renew(self, session: UpstreamSession, timeout: float, *keys: str) -> None:
        """Watch them in a session that has just opened."""
        for uri in self.by(*keys):
            with contextlib.suppress(UpstreamError):
                await session.watch_resource(uri, timeout)

    def forget(self, key: str) -> None:
        """The client with this key has left."""
        self._by.pop(key, None)


class SessionChoice:
    """The choice for one server."""

    def __init__(
        self,
        options: PoolOptions,
        spec: Callable[[], ServerSpec],
        session: Callable[[], UpstreamSession | None],
        first_session: Callable[[], Awaitable[UpstreamSession]],
        own: OwnSessions,
        only_client: OnlyClient,
    ) -> None:
        """`session` returns the first session, if it is open; `first_session` opens it. `own`: all others."""
        self.first = FirstSession()
        self._options = options
        self._spec = spec
        self._session = session
        self._first_session = first_session
        self._own = own
        self._only_client = only_client
        self._only_modern = False

    @property
    def is_apart(self) -> bool:
        """Whether every client has a session that no other client has."""
        return self._options.has_joined_clients and self._spec().session is Sharing.OWN

    def key_of(self, link: ClientLink | None) -> str:
        """The client with this link, if it has a session that no other client has; else empty."""
        return link.key if link is not None and self.is_apart else ""

    @property
    def key_of_first(self) -> str:
        """The client that has the first session for itself; else empty."""
        return self.key_of(self.first.owner)

    def open_now(self) -> ServerSessions:
        """The sessions that are open: the first, and clients' own."""
        return ServerSessions(len(self._own.opened()) + (self._session() is not None), self.is_apart)

    async def of(self, link: ClientLink | None) -> UpstreamSession:
        """The first session, or the client's own if the server could not otherwise know which client it talks to."""
        if link is not None and self._options.has_joined_clients:
            return await self._of_joined(link)
        first = await self._first_session()
        if link is None or self._options.has_one_client or self._only_modern:
            return first
        key = link.key
        if link.is_modern:
            if first.agreement.is_modern or not can_be_asked(link.capabilities):
                return first
            # A modern client may declare different capabilities with each request, but a legacy session keeps those
            # it was opened with.
            key = f"{key} {compact(link.capabilities)}"
        elif not link.capabilities and link.log_level is None:
            return first
        return await self._own_if_it_must(link, key) or first

    async def _own_if_it_must(self, link: ClientLink, key: str) -> UpstreamSession | None:
        """A session of the client's own; None if it cannot be opened, or the server does not need it."""
        own = await self._own.of(link, key)
        if own is not None and own.is_modern and not self.is_apart:
            # A modern server asks through its results, so no session has to belong to one client.
            self._only_modern = True
            self._own.leave(key)
            return None
        return own

    # Clients that join and leave.

    async def _of_joined(self, link: ClientLink) -> UpstreamSession:
        if not self._own.has(link.key):
            self.claim(link)
            if self._may_use_first(link):
                first = await self._first_session()
                # For whom it was opened is known only now.
                if self._may_use_first(link):
                    return first
        own = await self._own_if_it_must(link, link.key)
        if own is None and (self._only_modern or self.first.owner is None) and not self.is_apart:
            return await self._first_session()
        if own is None:
            name = self._spec().name
            raise ServerUnavailable(
                name,
                f"The server {name!r} could not be started for this client, or runs for too many clients at a time "
                f"(client_sessions). See `mcp-optimizer logs {name}`.",
            )
        return own

    def _may_use_first(self, link: ClientLink) -> bool:
        return self.first.is_of(link.key) or (self.first.owner is None and not self._needs_own(link))

    def claim(self, link: ClientLink | None) -> None:
        """Open the first session for this client, if it needs one that no other client has and none is open."""
        if link is None or not self._options.has_joined_clients or self._own.has(link.key):
            return
        if self._needs_own(link):
            self.first.claim(link, self._session())

    def _needs_own(self, link: ClientLink) -> bool:
        """Whether no other client may use this client's session."""
        if self.is_apart or self._only_modern:
            return self.is_apart
        if link.is_modern:
            first = self._session()
            return can_be_asked(link.capabilities) and (first is None or not first.is_modern)
        return bool(link.capabilities) or link.log_level is not None

    async def opening(self) -> ClientLink | None:
        """The client for which the first session is opened now, if it is to belong to one."""
        if self._options.has_one_client:
            return await self._only_client.known()
        if not self._options.has_joined_clients:
            return None
        if self.first.owner is None:
            self.claim(await self._only_client.known())
        return self.first.opening()

    def agreed(self, session: UpstreamSession) -> None:
        """The first session is open, and its revision is known."""
        if self._options.has_joined_clients and session.is_modern and not self.is_apart:
            # As above; other clients may use it, too.
            session.own(None)
            self.first.released()
