"""A client of a real gateway over real pipes, in one process, so that a test sees which calls take the short way."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_types import JSONRPCRequest

from mcp_optimizer import Optimizer
from mcp_optimizer.serving.gate import ClientRequest
from mcp_optimizer.serving.pipes import Pipes, open_pipes
from mcp_optimizer.serving.stdio import piped
from mcp_optimizer.serving.stdio_lane import Respond, StdioLane
from tests.e2e.raw_clients import HELLO, LEGACY, message
from tests.warm import warm_server

SERVER = Path(__file__).parents[2] / "servers" / "conformant.py"
PATIENCE = 30


class SeenLane(StdioLane):
    """Remembers the ids of the calls that it took."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.taken: list[Any] = []

    def takes(self, message: ClientRequest | JSONRPCRequest, respond: Respond) -> bool:
        is_taken = super().takes(message, respond)
        if is_taken:
            self.taken.append(message.id)
        return is_taken


class LaneClient:
    """The client's side of the pipes."""

    def __init__(self, pipes: Pipes, era: str, lane: SeenLane | None, serving: asyncio.Task[None]) -> None:
        self._pipes = pipes
        self._lane = lane
        self.era = era
        self.serving = serving
        self.rest: list[dict[str, Any]] = []
        """What still came after the client had closed its end; known after the block."""

    @property
    def taken(self) -> list[Any]:
        assert self._lane is not None
        return self._lane.taken

    def send(self, *values: Any) -> None:
        """In one piece."""
        self._pipes.writer.write(b"".join(json.dumps(value).encode() + b"\n" for value in values))

    def call(self, number: Any, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        return message("tools/call", {"name": name, "arguments": arguments or {}, **more}, number, self.era)

    async def heard(self) -> None:
        """Everything that was said so far has been heard, so that calls take the short way."""
        if self._lane is not None:
            before = list(self._lane.taken)
            while self._lane.taken == before:
                await self.ask(self.call("heard?", "test_simple_text"))
            self._lane.taken = before

    async def receive(self, notifications: str = "") -> dict[str, Any]:
        """The next message; of notifications, only those whose method begins so."""
        async with asyncio.timeout(PATIENCE):
            while True:
                received: dict[str, Any] = json.loads(await self._pipes.reader.readline())
                if "id" in received or (notifications and received["method"].startswith(notifications)):
                    return received

    async def ask(self, value: dict[str, Any]) -> dict[str, Any]:
        self.send(value)
        while (received := await self.receive()).get("id") != value["id"] or "method" in received:
            pass
        return received


@asynccontextmanager
async def lane_client(
    era: str, *, lane: bool = True, capabilities: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[LaneClient]:
    """A client that has shaken hands, of a gateway whose server is up. Without `lane`, the SDK answers everything."""
    servers = {"conformant": warm_server(SERVER)}
    options = {"mode": "transparent", "database": "none", "encoder": "none", **settings}
    async with Optimizer.from_config({"mcpServers": servers}, **options) as optimizer:
        (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
        ours, theirs = await open_pipes(stdin, stdout), await open_pipes(from_server, to_server)
        server = optimizer.mcp_server()
        short = SeenLane(server) if lane else None
        async with piped(optimizer.gate, ours, lane=short) as (incoming, outgoing):
            start = server.create_initialization_options()
            serving = asyncio.create_task(server.run(incoming, outgoing, start))
            client = LaneClient(theirs, era, short, serving)
            try:
                await _begun(client, capabilities)
                yield client
            finally:
                theirs.writer.close()
                await asyncio.wait_for(serving, PATIENCE)
        client.rest = [json.loads(line) async for line in theirs.reader]
        theirs.close()


async def _begun(client: LaneClient, capabilities: dict[str, Any] | None) -> None:
    if client.era == LEGACY:
        await client.ask(message("initialize", {**HELLO, "capabilities": capabilities or {}}, "hello"))
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    async with asyncio.timeout(PATIENCE):
        while not (await client.ask(message("tools/list", {}, "list", client.era)))["result"]["tools"]:
            pass
        await client.heard()
