"""A client of a real gateway over real pipes, in one process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_optimizer import Optimizer
from mcp_optimizer.serving.pipes import Pipes, open_pipes
from mcp_optimizer.serving.stdio import serve_pipes
from tests.e2e.raw_clients import HELLO, LEGACY, message
from tests.warm import warm_server

SERVER = Path(__file__).parents[2] / "servers" / "conformant.py"
PATIENCE = 30


class PipeUser:
    """The client's side of the pipes."""

    def __init__(self, pipes: Pipes, era: str, serving: asyncio.Task[None]) -> None:
        self._pipes = pipes
        self.era = era
        self.serving = serving
        self.rest: list[dict[str, Any]] = []
        """What still came after the client had closed its end; known after the block."""

    @property
    def unsent(self) -> int:
        """Bytes that the gateway has not begun to read."""
        return self._pipes.writer.transport.get_write_buffer_size()

    def send(self, *values: Any) -> None:
        """In one piece."""
        self._pipes.writer.write(b"".join(json.dumps(value).encode() + b"\n" for value in values))

    def call(self, number: Any, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        return message("tools/call", {"name": name, "arguments": arguments or {}, **more}, number, self.era)

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
async def pipe_client(
    era: str, *, capabilities: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[PipeUser]:
    """A client that has shaken hands, of a gateway whose server is up."""
    servers = {"conformant": warm_server(SERVER)}
    options = {"mode": "transparent", "database": "none", "encoder": "none", **settings}
    async with Optimizer.from_config({"mcpServers": servers}, **options) as optimizer:
        (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
        ours, theirs = await open_pipes(stdin, stdout), await open_pipes(from_server, to_server)
        serving = asyncio.create_task(serve_pipes(optimizer.mcp_server(), optimizer.gate, ours))
        client = PipeUser(theirs, era, serving)
        try:
            await _begun(client, capabilities)
            yield client
        finally:
            theirs.writer.close()
            await asyncio.wait_for(serving, PATIENCE)
        client.rest = [json.loads(line) async for line in theirs.reader]
        theirs.close()


async def _begun(client: PipeUser, capabilities: dict[str, Any] | None) -> None:
    if client.era == LEGACY:
        await client.ask(message("initialize", {**HELLO, "capabilities": capabilities or {}}, "hello"))
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    async with asyncio.timeout(PATIENCE):
        while not (await client.ask(message("tools/list", {}, "list", client.era)))["result"]["tools"]:
            pass
