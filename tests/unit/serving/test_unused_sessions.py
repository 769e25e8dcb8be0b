"""Sessions that a client opened but never used are ended; sessions that it uses stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.server.lowlevel import Server

from mcp_optimizer.serving.http import UnusedSessions

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SECONDS = 0.3


@asynccontextmanager
async def served() -> AsyncIterator[httpx2.AsyncClient]:
    server: Server[Any] = Server("test", version="1")
    app = server.streamable_http_app()
    app.add_middleware(UnusedSessions, manager=server.session_manager, seconds=SECONDS)
    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://localhost:8000", headers=ACCEPT
        ) as http,
    ):
        yield http


async def opened(client: httpx2.AsyncClient) -> dict[str, str]:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    response = await client.post("/mcp", json=hello)
    assert response.status_code == 200
    return {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


async def ping(client: httpx2.AsyncClient, session: dict[str, str]) -> int:
    response = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=session)
    return response.status_code


async def test_a_session_that_was_never_used_is_ended() -> None:
    async with served() as client:
        session = await opened(client)
        await asyncio.sleep(3 * SECONDS)
        assert await ping(client, session) == 404


async def test_a_session_that_was_used_once_stays() -> None:
    async with served() as client:
        session = await opened(client)
        await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        await asyncio.sleep(3 * SECONDS)
        assert await ping(client, session) == 200
