"""A server whose tools do what a test of HTTP needs, behind the gate, with a real uvicorn and real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http import McpEndpoint
from mcp_optimizer.serving.messages import for_era
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, message
from tests.unit.serving.test_http_connections import served as listening

Context = ServerRequestContext[Any, Any]
FORM: types.ElicitRequestedSchema = {"type": "object", "properties": {"name": {"type": "string"}}}


class Tools:
    """What the server does, and what happened in it."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []

    async def answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A middleware, as the gateway's own: answers calls with raw objects."""
        if ctx.method != "tools/call":
            return await call_next(ctx)
        params = types.CallToolRequestParams.model_validate(ctx.params or {}, by_name=False)
        result = await self.call(ctx, params)
        return for_era(result.model_dump(by_alias=True, mode="json", exclude_none=True), ctx.protocol_version, dict)

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.began.put_nowait(params.name)
        try:
            text = await self._do(ctx, params.name, params.arguments or {})
        except asyncio.CancelledError:
            self.ended.append(f"{params.name} was cancelled")
            raise
        self.ended.append(f"{params.name} was done")
        return types.CallToolResult(content=[types.TextContent(text=text)])

    async def _do(self, ctx: Context, name: str, arguments: dict[str, Any]) -> str:
        if name == "tell":
            for number in range(arguments.get("times", 1)):
                notice = types.ProgressNotificationParams(progress_token="p", progress=number)
                await ctx.session.send_notification(
                    types.ProgressNotification(params=notice), related_request_id=ctx.request_id
                )
        elif name == "ask":
            answer = await ctx.session.elicit_form("Who are you?", FORM, related_request_id=ctx.request_id)
            return f"{answer.action}: {answer.content}"
        elif name == "release":
            assert ctx.close_sse_stream is not None
            await ctx.close_sse_stream()
            await self.go_on.wait()
        elif name == "wait":
            await self.go_on.wait()
        elif name == "fail":
            raise RuntimeError("a bug")
        return str(arguments.get("text", "done"))


class Client:
    """One session over HTTP."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.headers: dict[str, str] = {}

    async def open(self) -> None:
        hello = {**HELLO, "capabilities": {"elicitation": {}}}
        response = await self.http.post("/mcp", json=message("initialize", hello, 0))
        self.headers = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def post(self, content: Any, **headers: str) -> httpx2.Response:
        return await self.http.post("/mcp", json=content, headers={**self.headers, **headers})

    async def call(self, tool: str, number: Any = 1, **arguments: Any) -> httpx2.Response:
        return await self.post(called(tool, number, **arguments))

    @asynccontextmanager
    async def streamed(self, tool: str, number: Any = 1, **arguments: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a call, as they come: the ids of empty ones, and messages."""
        content, headers = called(tool, number, **arguments), self.headers
        async with self.http.stream("POST", "/mcp", json=content, headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            yield events(response)

    @asynccontextmanager
    async def resumed(self, event: str) -> AsyncIterator[AsyncIterator[Any]]:
        headers = {**self.headers, "Last-Event-ID": event}
        async with self.http.stream("GET", "/mcp", headers=headers) as response:
            assert response.status_code == 200
            yield events(response)

    async def cancel(self, number: Any) -> None:
        params = {"requestId": number}
        await self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def called(tool: str, number: Any = 1, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, number)


async def events(response: httpx2.Response) -> AsyncIterator[Any]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            name = line.removeprefix("id: ")
        elif line.startswith("data:"):
            data = line.removeprefix("data:").strip()
            yield json.loads(data) if data else name


@asynccontextmanager
async def served(limits: Limits | None = None) -> AsyncIterator[tuple[Tools, Client]]:
    tools = Tools()
    server: Server[Any] = Server("test", version="1", on_call_tool=tools.call, get_tool_input_schema=lambda _name: None)
    hosts = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    gate = Gate(limits or Limits())
    mcp = McpEndpoint(server, gate, hosts)
    server.middleware += [gate.check, tools.answer]
    async with (
        mcp.run(),
        listening(mcp.app, limits or Limits()) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ACCEPT, timeout=30) as http,
    ):
        client = Client(http)
        await client.open()
        yield tools, client
