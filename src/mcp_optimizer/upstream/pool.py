"""All servers, each started, watched and restarted by its own supervisor.

No server waits for another. What changes (a server is up, its tools changed, it died) is told to
whoever listens at once, in the event loop, as a frozen value (`news`). Calls of all clients share one session with each
server, except where that would mix them up: see `own_sessions`. Called by the gateway and the catalog.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from mcp_optimizer.domain.caller import LOCAL, Caller, ClientLink
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import UpstreamError
from mcp_optimizer.upstream import processes
from mcp_optimizer.upstream.authorization import Authorize, nobody
from mcp_optimizer.upstream.connecting import Connect, connecting
from mcp_optimizer.upstream.news import ServerNews
from mcp_optimizer.upstream.only_client import OnlyClient
from mcp_optimizer.upstream.parked import Parked, ParkedCalls
from mcp_optimizer.upstream.spec import ServerSpec
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState
from mcp_optimizer.upstream.supervisor import Supervisor

logger = logging.getLogger(__name__)


class UpstreamPool:
    """The servers of one gateway."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        options: PoolOptions,
        version: str,
        news: ServerNews | None = None,
        connect: Connect | None = None,
        authorize: Authorize = nobody,
    ) -> None:
        """`news` is told what happens to the servers; `connect` is how they are reached; `authorize`, how they are told
        who calls.
        """
        reach = connect or connecting(authorize)
        self._options = options
        self._news = news or ServerNews()
        self._only_client = OnlyClient()
        self._parked = ParkedCalls(options.parking, has_one_client=options.has_one_client)
        client_info = {"name": "mcp-optimizer", "version": version}
        self._servers = {
            spec.name: Supervisor(
                spec,
                options,
                client_info,
                self._changed,
                self._news.noticed,
                self._only_client,
                self._parked,
                reach,
                authorize(spec),
            )
            for spec in specs
        }
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._has_changed = asyncio.Event()

    def start(self) -> None:
        """Start every server in the background, and return at once."""
        self._running = asyncio.create_task(self._run(), name="upstream pool")

    async def stop(self) -> None:
        """Fail all waiting calls because the gateway stops, and end all servers at the same time."""
        # First of all, so that no server that ends now is restarted.
        self._stopping.set()
        for server in self._servers.values():
            server.interrupt()
        ending = [self._parked.close(), *(server.own.close() for server in self._servers.values())]
        running = [self._running] if self._running is not None else []
        ended = await asyncio.gather(*running, *ending, return_exceptions=True)
        await processes.release()
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def drained(self, timeout: float) -> None:
        """Accept no more calls, and wait until those in progress are answered, or until the time is up."""
        for server in self._servers.values():
            server.take_no_more()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for server in self._servers.values():
                    await server.admission.emptied()

    async def _run(self) -> None:
        # One scope for all, ended from inside: cancelling a task from outside would interrupt the shielded end of its
        # child process.
        async with anyio.create_task_group() as tasks:
            for server in self._servers.values():
                if server.can_run:
                    tasks.start_soon(self._keep_alive, server)
            await self._stopping.wait()
            tasks.cancel_scope.cancel()

    async def _keep_alive(self, server: Supervisor) -> None:
        """A fault of ours in one server's loop must not reach the others, which share our scope."""
        while True:
            try:
                await server.run()
            except Exception:
                logger.exception("Server %s: its supervisor failed; restarting it", server.state.name)
                await asyncio.sleep(self._options.longest_pause)

    def states(self) -> list[UpstreamState]:
        return [server.state for server in self._servers.values()]

    async def settled(self, timeout: float) -> None:
        """Wait until no server is starting any more, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(state.status is ServerStatus.STARTING for state in self.states()):
                    self._has_changed.clear()
                    await self._has_changed.wait()

    async def call(self, server: str, method: str, params: dict[str, Any], caller: Caller = LOCAL) -> dict[str, Any]:
        """One request to a running server, under its deadline; returns the raw result."""
        return await self._servers[server].request(method, params, caller)

    def parked(self, caller: Caller) -> Parked | None:
        """The parked call that a client's answers continue, if any; raises the error that the call failed with
        meanwhile.
        """
        return self._parked.find(caller)

    async def watch_resource(self, server: str, uri: str) -> None:
        """Have the news tell when a resource changes; also after the server was restarted."""
        await self._servers[server].watch(uri)

    async def unwatch_resource(self, server: str, uri: str) -> None:
        await self._servers[server].unwatch(uri)

    def client_connected(self, client: ClientLink) -> None:
        """The one client of a gateway on stdio has introduced itself."""
        self._only_client.client_connected(client)

    def client_left(self, key: str) -> None:
        """A client is gone: its own sessions end."""
        for server in self._servers.values():
            server.own.leave(key)

    async def tell(self, key: str, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Pass a client's notification on to every session that it owns."""
        sessions = [server.owned_by(key) for server in self._servers.values()]
        await asyncio.gather(*(session.tell(method, params) for session in sessions if session is not None))

    async def set_log_level(self, key: str, level: str) -> None:
        """Set the log level in every session that a client owns; later sessions are told when they open."""
        for server in self._servers.values():
            session = server.owned_by(key)
            if session is not None and not session.is_modern and session.can("logging"):
                with contextlib.suppress(UpstreamError):
                    await session.request("logging/setLevel", {"level": level}, self._options.call_timeout)

    def _changed(self, state: UpstreamState) -> None:
        self._has_changed.set()
        self._news.changed(state)
