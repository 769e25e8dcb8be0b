"""All upstream servers: each started, watched and restarted by a task of its own.

No server waits for another. What changes (a server is up, its tools changed, it died) is told to one
listener at once, in the event loop, as a frozen value. Called by the gateway and the catalog.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp_optimizer.db.models import ServerStatus
from mcp_optimizer.errors import CallInterrupted, ServerUnavailable
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.session import Evidence, UpstreamSession, open_session
from mcp_optimizer.upstream.spec import ServerSpec, Transport

logger = logging.getLogger(__name__)

_HEALTHY_AFTER = 60.0
"""Seconds a server must have run for its next restart to be quick again."""

_CHECK_INTERVAL = 15.0
"""Seconds between signs of life of an HTTP server; a child process tells by ending."""

_EXPECTED = (
    MCPError,
    OSError,
    TimeoutError,
    RuntimeError,
    ValidationError,
    httpx2.HTTPError,
    anyio.BrokenResourceError,
)
"""What connecting to somebody else's server may raise. Anything else is our own bug and surfaces."""


_CLOSED = "the connection was closed"


@dataclass(frozen=True)
class PoolOptions:
    """How patient the pool is, in seconds."""

    start_timeout: float = 60.0
    call_timeout: float = 60.0
    first_pause: float = 1.0
    longest_pause: float = 60.0


@dataclass(frozen=True)
class UpstreamState:
    """Where one server stands."""

    spec: ServerSpec
    status: ServerStatus
    listing: Listing = field(default_factory=Listing, repr=False)
    reason: str = ""
    protocol_version: str = ""
    server_version: str = ""
    started_in: float = 0.0
    restarts: int = 0

    @property
    def name(self) -> str:
        return self.spec.name


Listener = Callable[[UpstreamState], None]


class UpstreamPool:
    """The servers of one gateway."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        options: PoolOptions,
        version: str,
        listener: Listener | None = None,
    ) -> None:
        self._options = options
        self.listener = listener
        client_info = types.Implementation(name="mcp-optimizer", version=version)
        self._servers = {spec.name: _Upstream(spec, options, client_info, self._changed) for spec in specs}
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()

    def start(self) -> None:
        """Begin to start every server, and return at once."""
        self._running = asyncio.create_task(self._run(), name="upstream pool")

    async def stop(self) -> None:
        """End every server, all at the same time."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        # One scope for all, ended from inside: cancelling a task from outside would break off the shielded
        # end of its child process.
        async with anyio.create_task_group() as tasks:
            for server in self._servers.values():
                if server.can_run:
                    tasks.start_soon(server.run)
            await self._stopping.wait()
            tasks.cancel_scope.cancel()

    def states(self) -> list[UpstreamState]:
        return [server.state for server in self._servers.values()]

    async def settled(self, timeout: float) -> None:
        """Wait until no server is starting any more, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(state.status is ServerStatus.STARTING for state in self.states()):
                    self._news.clear()
                    await self._news.wait()

    async def call(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request to a running server, under its deadline; the raw result."""
        return await self._servers[server].request(method, params)

    def _changed(self, state: UpstreamState) -> None:
        self._news.set()
        if self.listener is not None:
            self.listener(state)


class _Upstream:
    """One server: its state, its session while there is one, and the loop that keeps it alive."""

    def __init__(
        self, spec: ServerSpec, options: PoolOptions, client_info: types.Implementation, changed: Listener
    ) -> None:
        self._spec = spec
        self._options = options
        self._client_info = client_info
        self._changed = changed
        self._session: UpstreamSession | None = None
        self._legacy = False
        self._transport = spec.transport
        if spec.problem:
            self.state = UpstreamState(spec, ServerStatus.FAILED, reason=spec.problem)
        elif spec.disabled:
            self.state = UpstreamState(spec, ServerStatus.STOPPED, reason="disabled in its server file")
        else:
            self.state = UpstreamState(spec, ServerStatus.STARTING)

    @property
    def can_run(self) -> bool:
        return not self._spec.problem and not self._spec.disabled

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session
        if session is None:
            raise ServerUnavailable(
                self._spec.name,
                f"The server {self._spec.name!r} is not running ({self.state.reason or self.state.status}). "
                "Try again shortly, or see `mcp-optimizer doctor`.",
            )
        try:
            return await session.request(method, params, self._spec.timeout or self._options.call_timeout)
        except CallInterrupted:
            # Whoever is told that the server is gone must not still find its tools.
            if self._session is session:
                self._down(session.epitaph() or _CLOSED)
            raise

    async def run(self) -> None:
        """Start, watch, restart; until cancelled."""
        pause = self._options.first_pause
        while True:
            started = time.monotonic()
            reason, retry_at_once = await self._live_once(started)
            if retry_at_once:
                continue
            self._down(reason)
            if time.monotonic() - started > _HEALTHY_AFTER:
                pause = self._options.first_pause
            logger.warning("Server %s is down: %s. Next start in %.0f s.", self._spec.name, reason, pause)
            # Spread out, so that ten servers behind one broken network do not all come back in step.
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311
            pause = min(pause * 2, self._options.longest_pause)
            self._set(status=ServerStatus.STARTING, restarts=self.state.restarts + 1)

    async def _live_once(self, started: float) -> tuple[str, bool]:
        """One life of the server. Returns why it ended, and whether another way of speaking is worth a try."""
        evidence = Evidence()
        problem, was_up = "", False
        try:
            async with open_session(self._spec, self._transport, self._client_info, evidence) as session:
                # Not a local name here: it would keep every definition for as long as the server lives.
                self._up(session, await self._begin(session), time.monotonic() - started)
                was_up = True
                try:
                    await self._watch(session)
                finally:
                    # At once: cleaning up after a dead child may take seconds, and nobody should count on it.
                    self._down(evidence.epitaph() or _CLOSED)
        except* _EXPECTED as group:
            problem = self._explain(group.exceptions[0])
        reason = evidence.epitaph() or problem or _CLOSED
        return reason, not was_up and self._try_another_way(evidence)

    async def _begin(self, session: UpstreamSession) -> Listing:
        """Agree on a protocol and list the tools, within the time a server has to start."""
        with anyio.fail_after(self._options.start_timeout):
            # The SSE transport is older than the newer era: there is nothing to probe for.
            await session.negotiate(legacy=self._legacy or self._transport is Transport.SSE)
            return await session.list_tools(self._options.start_timeout)

    def _up(self, session: UpstreamSession, listing: Listing, seconds: float) -> None:
        self._session = session
        self._set(
            status=ServerStatus.RUNNING,
            listing=listing,
            reason="",
            protocol_version=session.protocol_version,
            server_version=session.server_version,
            started_in=seconds,
        )
        if listing.left_out:
            first = listing.left_out[0]
            logger.warning(
                "Server %s: %d of its tools cannot be used and are left out, such as %r (%s). See `doctor`.",
                self._spec.name,
                len(listing.left_out),
                first.name,
                first.reason,
            )

    def _down(self, reason: str) -> None:
        self._session = None
        self._set(status=ServerStatus.FAILED, reason=reason, listing=Listing())

    async def _watch(self, session: UpstreamSession) -> None:
        """Until the session ends: list again when tools change, and see that an HTTP server still answers."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.watch_tools)
            tasks.start_soon(self._relist, session)
            if self._transport is not Transport.STDIO:
                tasks.start_soon(self._check, session)
            await session.wait_closed()
            tasks.cancel_scope.cancel()

    async def _relist(self, session: UpstreamSession) -> None:
        while True:
            await session.tools_changed.wait()
            session.tools_changed.clear()
            self._set(listing=await session.list_tools(self._options.start_timeout))

    async def _check(self, session: UpstreamSession) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            await session.check_alive(_CHECK_INTERVAL)

    def _try_another_way(self, evidence: Evidence) -> bool:
        """Some older servers end when they are probed, and some URLs without a type are SSE."""
        if self._spec.transport is Transport.STDIO and not self._legacy and evidence.child is not None:
            self._legacy = evidence.child.hung_up
            return self._legacy
        refused = evidence.http_status in (400, 404, 405)
        if self._transport is Transport.HTTP and not self._spec.transport_is_certain and refused:
            self._transport = Transport.SSE
            return True
        self._transport = self._spec.transport
        return False

    def _explain(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return f"it did not answer within {self._options.start_timeout:g} s"
        if isinstance(error, httpx2.ConnectError):
            return "nothing answers at its url"
        if isinstance(error, MCPError):
            return f"it refused: {error.message}"
        return str(error) or type(error).__name__

    def _set(self, **changes: Any) -> None:
        state = replace(self.state, **changes)
        self.state = replace(state, listing=state.listing.summary())
        self._changed(state)
