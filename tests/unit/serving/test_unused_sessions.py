"""Sessions that a client opened but never used are ended; sessions that it uses stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.server.lowlevel import Server

from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http_gate import HttpGate
from mcp_optimizer.serving.modern_http import ModernHttp
from mcp_optimizer.serving.sessions import Sessions
from tests.waiting import until

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SECONDS = 0.3


@asynccontextmanager
async def served(unused: float = SECONDS, idle: float = 60) -> AsyncIterator[tuple[Sessions, httpx2.AsyncClient]]:
    server: Server[Any] = Server("test", version="1")
    sessions = Sessions(server, DEFAULT_LIMITS, unused=unused, idle=idle)
    app = HttpGate(sessions, ModernHttp(), Gate(), None)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://localhost:8000", headers=ACCEPT
    ) as http:
        sessions.start({})
        yield sessions, http
        await sessions.close()


async def opened(client: httpx2.AsyncClient) -> dict[str, str]:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    response = await client.post("/mcp", json=hello)
    assert response.status_code == 200
    return {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


async def ping(client: httpx2.AsyncClient, session: dict[str, str]) -> int:
    response = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=session)
    return response.status_code


async def test_a_session_that_was_never_used_is_ended() -> None:
    async with served() as (sessions, client):
        session = await opened(client)
        assert sessions.has_session(session["mcp-session-id"])
        await until(lambda: len(sessions) == 0)


async def test_a_session_that_was_used_once_stays() -> None:
    async with served() as (sessions, client):
        session = await opened(client)
        await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        await asyncio.sleep(3 * SECONDS)
        assert sessions.has_session(session["mcp-session-id"])
        assert await ping(client, session) == 200


async def test_a_session_that_nobody_uses_any_more_is_ended() -> None:
    async with served(unused=60, idle=SECONDS) as (sessions, client):
        session = await opened(client)
        assert await ping(client, session) == 200
        await until(lambda: len(sessions) == 0)
