"""Waits for servers that are starting, on behalf of a request that may mean one of them.

A first search or call often arrives while servers start and the encoder loads. Denying a tool that is about to exist
would make a model give up, so the request waits for a bounded time. If a server's tools are known from an earlier
start, a search finds them at once, and only a call waits. A server whose tools are unknown delays nothing once it has
been starting for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import StillStarting

_PATIENCE = 8.0
"""Maximum seconds that a request waits for servers that it may or may not mean."""

_CALL_PATIENCE = 30.0
"""Maximum seconds that a call waits for its tool's server."""

_NEW = 20.0
"""Seconds after which a server that is still starting is no longer waited for."""


Own = Callable[[Snapshot, Caller], Snapshot]
"""The snapshot with a caller's own servers."""


class StartingServers:
    """Lets requests wait for starting servers."""

    def __init__(
        self,
        catalog: LiveCatalog,
        wake: Callable[[str, Caller], None],
        patience: float = _PATIENCE,
        call_patience: float = _CALL_PATIENCE,
        own: Own | None = None,
    ) -> None:
        """`wake` starts a server that rests, for a caller. `own` has a caller's own servers."""
        self._catalog = catalog
        self._wake = wake
        self._own: Own = own or (lambda snapshot, _caller: snapshot)
        self._patience = patience
        self._call_patience = call_patience

    async def until_up(self, server: str, caller: Caller = LOCAL) -> None:
        """Wait until a starting server runs and its current tools are listed, or it is down.

        Raises StillStarting.
        """
        self._wake(server, caller)
        await self._while(lambda snapshot: is_coming(snapshot, server), server, caller)

    async def until_known(self, servers: Sequence[str], caller: Caller = LOCAL) -> None:
        """Wait until the tools of one of these servers are known, or it is down. Raises StillStarting."""
        await self._while(
            lambda snapshot: all(_is_unknown(snapshot, one) for one in servers),
            servers[0],
            caller,
        )

    async def _while(self, is_early: Callable[[Snapshot], bool], server: str, caller: Caller) -> None:
        try:
            async with asyncio.timeout(self._call_patience):
                while is_early(self._own(self._catalog.snapshot, caller)):
                    await self._catalog.changed()
        except TimeoutError:
            since = self._own(self._catalog.snapshot, caller).states[server].since
            raise StillStarting(server, time.time() - since) from None

    async def wait(
        self, view: Callable[[], Awaitable[Snapshot]], is_enough: Callable[[Snapshot], Awaitable[bool]]
    ) -> bool:
        """Wait until a request has what it needs, or no server has just begun to start; returns whether it waited."""
        waited = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                before, own = self._catalog.snapshot, self._catalog.own_changes
                while _is_beginning(seen := await view()) and not await is_enough(seen):
                    waited = True
                    # A change that arrived while this snapshot was searched would not be reported again.
                    if self._catalog.snapshot is before and self._catalog.own_changes == own:
                        await self._catalog.changed()
                    before, own = self._catalog.snapshot, self._catalog.own_changes
        return waited


def is_coming(snapshot: Snapshot, server: str) -> bool:
    """Whether a server is starting, or its list of tools is just being read."""
    state = snapshot.states.get(server)
    if state is None:
        return False
    if state.is_coming or server in snapshot.expected:
        return True
    return state.status is ServerStatus.RUNNING and any(one.name == server for one in snapshot.missing())


def _is_unknown(snapshot: Snapshot, server: str) -> bool:
    """Whether a server is coming whose tools are not known yet."""
    is_resting = server in snapshot.states and snapshot.states[server].status is ServerStatus.RESTING
    return is_coming(snapshot, server) and server not in snapshot.expected and not is_resting


def _is_beginning(snapshot: Snapshot) -> bool:
    if snapshot.encoder_is_loading:
        return True
    if not snapshot.is_starting:
        return False
    now = time.time()
    return any(not state.is_down and now - state.since < _NEW for state in snapshot.missing())
