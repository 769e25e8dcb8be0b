"""A pool in front of fake servers, with everything that its listeners were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerNews
from mcp_optimizer.upstream.state import PoolOptions, Recall, UpstreamState
from tests.unit.upstream.fake_server import FakeServer, FakeServers

QUICK = PoolOptions(start_timeout=5, call_timeout=5, first_pause=0.001, longest_pause=0.004)


@dataclass
class Running:
    """A pool, everything its listeners were told, and ways to wait for more of it."""

    pool: UpstreamPool
    states: list[UpstreamState] = field(default_factory=list)
    notices: list[tuple[str, str]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self, name: str = "one") -> UpstreamState:
        return next(state for state in self.pool.states() if state.name == name)

    def on_state(self, state: UpstreamState) -> None:
        self.states.append(state)
        self.told.set()

    def on_notice(self, server: str, method: str, _params: Any, _key: str) -> None:
        self.notices.append((server, method))
        self.told.set()

    def on_gone(self, server: str) -> None:
        self.gone.append(server)
        self.told.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self.told.clear()
                await self.told.wait()

    async def until_up(self, name: str = "one", restarts: int = 0) -> None:
        await self.until(
            lambda: self.state(name).status is ServerStatus.RUNNING and self.state(name).restarts >= restarts
        )

    async def call(self, server: str = "one", **arguments: Any) -> dict[str, Any]:
        return await self.pool.call(server, "tools/call", {"name": "add", "arguments": arguments})


@asynccontextmanager
async def running(
    *specs: ServerSpec,
    options: PoolOptions = QUICK,
    start: bool = True,
    recall: Recall | None = None,
    **servers: FakeServer,
) -> AsyncIterator[Running]:
    chosen = specs or [ServerSpec(name, Transport.STDIO, command=name) for name in servers]
    news = ServerNews()
    found = Running(UpstreamPool(chosen, options, "1", news, FakeServers(**servers).connect, recall=recall))
    news.listen(found.on_state, found.on_notice, found.on_gone)
    if start:
        found.pool.start()
    try:
        yield found
    finally:
        await found.pool.stop()
