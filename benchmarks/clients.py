"""A plain HTTP client of either era, for benchmarks and tests: thousands of them cost little."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import httpx2

_MODERN = "2026-07-28"
_LEGACY = "2025-11-25"
HELLO = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": {"name": "many", "version": "1"}}
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class PlainClient:
    """Just enough of an MCP client."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        *,
        is_modern: bool = False,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        """`capabilities`: what a modern client declares."""
        self._capabilities = capabilities or {}
        self._http = http
        self._url = url
        self._headers = dict(_ACCEPT)
        self._is_modern = is_modern
        self.stream: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        if self._is_modern:
            self._headers["mcp-protocol-version"] = _MODERN
            return
        self.use_session(await self._post({"id": 0, "method": "initialize", "params": HELLO}))
        await self._post({"method": "notifications/initialized"})

    def use_session(self, response: httpx2.Response) -> None:
        """Send what follows in the session that this response to `initialize` opened."""
        self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
        self._headers["mcp-protocol-version"] = _LEGACY

    async def request(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its response: the message with the result or the error."""
        return message_of(await self._post({"id": number, "method": method, "params": params}))

    async def attempt(self, number: int, method: str, params: dict[str, Any]) -> None:
        """Send a request and ignore its response, or that none arrives."""
        with contextlib.suppress(httpx2.HTTPError, AssertionError, ValueError, LookupError):
            await self.request(number, method, params)

    async def listen(self) -> None:
        """Open a stream and keep it open, as a client does to hear of changes."""
        opened = asyncio.Event()

        async def read() -> None:
            async with self._http.stream("GET", self._url, headers=self._headers) as response:
                assert response.status_code == 200
                opened.set()
                async for _ in response.aiter_bytes():
                    pass

        self.stream = asyncio.create_task(read())
        await opened.wait()

    async def call(self, number: int) -> float:
        started = time.perf_counter()
        params = {"name": "echo", "arguments": {"text": f"call {number}"}}
        response = await self._post({"id": number, "method": "tools/call", "params": params})
        assert f"call {number}" in response.text, response.text
        return time.perf_counter() - started

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        response = await self._http.send(self.made(message))
        assert response.status_code in (200, 202, 400), response.text
        return response

    def made(self, message: dict[str, Any], **more: str) -> httpx2.Request:
        """The HTTP request that carries a message, for whoever sends it; with more headers."""
        headers = {**self._headers, **more}
        if self._is_modern:
            params = message.setdefault("params", {})
            params["_meta"] = {"io.modelcontextprotocol/protocolVersion": _MODERN, _CAPABILITIES: self._capabilities}
            headers = {**headers, "mcp-method": message["method"]}
            if (named := params.get("name") or params.get("taskId")) is not None:
                headers["mcp-name"] = named
        return self._http.build_request("POST", self._url, json={"jsonrpc": "2.0", **message}, headers=headers)

    async def leave(self) -> None:
        """End the session, as clients do when they close."""
        if "mcp-session-id" in self._headers:
            await self._http.delete(self._url, headers=self._headers)


def message_of(response: httpx2.Response) -> dict[str, Any]:
    """The message with the result or the error."""
    body = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        body = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")][-1]
    assert body.strip(), f"a stream without a response: {response.text[-500:]!r}"
    message: dict[str, Any] = json.loads(body)
    return message


async def until_ready(http: httpx2.AsyncClient, port: int) -> None:
    """Wait until a gateway answers, and its servers have started."""
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if (await http.get(f"http://127.0.0.1:{port}/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.2)
