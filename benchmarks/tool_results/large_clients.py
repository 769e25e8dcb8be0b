"""Clients for `large`: they return responses as bytes and parse none, so that the gateway is what is slow."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Protocol

import httpx2

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "large", "version": "1"}}


class Client(Protocol):
    """Sends a request and returns the whole response."""

    async def ask(self, method: str, params: dict[str, Any]) -> bytearray: ...


class StdioClient:
    """The only client of a gateway on stdio."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[bytearray]] = {}
        self._last = 0

    async def read(self) -> None:
        assert self._process.stdout is not None
        line = bytearray()
        while chunk := await self._process.stdout.read(1 << 18):
            *ended, rest = chunk.split(b"\n")
            for end in ended:
                line += end
                if (found := re.match(rb'\{"jsonrpc":"2.0","id":(\d+),"(?:result|error)"', line)) is not None:
                    self._waiting.pop(int(found[1])).set_result(line)
                line = bytearray()
            line += rest

    async def ask(self, method: str, params: dict[str, Any]) -> bytearray:
        assert self._process.stdin is not None
        self._last += 1
        answer: asyncio.Future[bytearray]
        answer = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return await answer

    async def tell(self, method: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")


class HttpClient:
    """A client with a session of its own."""

    def __init__(self, address: str, http: httpx2.AsyncClient) -> None:
        self._address = address
        self._http = http
        self._headers = {"accept": "application/json, text/event-stream"}

    async def ask(self, method: str, params: dict[str, Any]) -> bytearray:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        body = bytearray()
        async with self._http.stream("POST", self._address, json=message, headers=self._headers) as response:
            if session := response.headers.get("mcp-session-id"):
                self._headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
            async for chunk in response.aiter_raw():
                body += chunk
        if (begin := body.find(b"data: {", 0, 1_000)) >= 0:
            del body[: begin + 6]
            del body[body.rfind(b"}", len(body) - 10) + 1 :]
        return body

    async def tell(self, method: str) -> None:
        await self._http.post(self._address, json={"jsonrpc": "2.0", "method": method}, headers=self._headers)
