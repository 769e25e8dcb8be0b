"""Clients that send arbitrary bytes to a real gateway, over stdio and HTTP, in both protocol eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types

from tests.e2e.running import WARM
from tests.waiting import until

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ENVELOPE = {
    types.PROTOCOL_VERSION_META_KEY: MODERN,
    types.CLIENT_INFO_META_KEY: {"name": "raw", "version": "1"},
    types.CLIENT_CAPABILITIES_META_KEY: {},
}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
PATIENCE = 60


def message(method: str, params: dict[str, Any] | None = None, number: Any = 1, era: str = LEGACY) -> dict[str, Any]:
    """A well-formed request of this era. Its own `_meta` overrides what the era requires."""
    given = params or {}
    if era == MODERN:
        given = {**given, "_meta": {**ENVELOPE, **given.get("_meta", {})}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": given}


def encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


class StdioClient:
    """A client at the other end of a gateway's pipes."""

    def __init__(self, process: asyncio.subprocess.Process, era: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.era = era
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, value: Any) -> None:
        self._stdin.write(encoded(value) + b"\n")
        await self._stdin.drain()

    async def receive(self) -> dict[str, Any]:
        """The next message that is not a notification."""
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self._stdout.readline()
                assert line, "the gateway ended"
                received: dict[str, Any] = json.loads(line)
                if "id" in received:
                    return received

    async def exchange(self, value: Any) -> dict[str, Any]:
        await self.send(value)
        return await self.receive()

    async def ask(self, method: str, params: dict[str, Any] | None = None, number: Any = "witness") -> dict[str, Any]:
        answer = await self.exchange(message(method, params, number, self.era))
        assert answer["id"] == number
        return answer


@asynccontextmanager
async def stdio_client(
    config: Path,
    *options: object,
    era: str = LEGACY,
    capabilities: dict[str, Any] | None = None,
    most_unread: int = 1 << 26,
    program: Sequence[str] = WARM,
) -> AsyncIterator[StdioClient]:
    """A gateway and its client. `most_unread`: bytes buffered from the gateway before a test reads them.

    A test that looks at the process itself gives `program=COMMAND`.
    """
    process = await asyncio.create_subprocess_exec(
        *program,
        "serve",
        "--config",
        str(config),
        *map(str, options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=most_unread,
    )
    try:
        client = StdioClient(process, era)
        if era == LEGACY:
            await client.ask("initialize", {**HELLO, "capabilities": capabilities or {}})
            await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # A shared gateway may hold the pipes a little longer than the client's process lives.
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError, ValueError):
            await asyncio.wait_for(process.stdout.read(), 5)


class HttpClient:
    """A client that posts arbitrary messages, in its own session if its era has sessions."""

    def __init__(self, address: str, era: str, http: httpx2.AsyncClient) -> None:
        self.address = address
        self.era = era
        self.http = http
        self.headers = {**ACCEPT, "MCP-Protocol-Version": era}

    async def open(self) -> None:
        if self.era == LEGACY:
            # Asked to come back where the machine is busy: the database has a second to say whose key it is.
            await until(self.is_let_in)
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def is_let_in(self) -> bool:
        """Try to open a session; false if the gateway asks to come back."""
        response = await self.post(message("initialize", HELLO, 0))
        if "Retry-After" not in response.headers:
            self.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
        return "Mcp-Session-Id" in self.headers

    async def post(self, value: Any, **headers: str) -> httpx2.Response:
        body = encoded(value)
        routing = {"Mcp-Method": found.group(1).decode()} if (found := _METHOD.search(body)) else {}
        if found := _NAME.search(body):
            routing["Mcp-Name"] = found.group(1).decode()
        return await self.http.post(self.address, content=body, headers={**self.headers, **routing, **headers})

    async def exchange(self, value: Any) -> dict[str, Any]:
        return answer_of(await self.post(value))

    async def ask(self, method: str, params: dict[str, Any] | None = None, number: Any = "witness") -> dict[str, Any]:
        return await self.exchange(message(method, params, number, self.era))


_METHOD = re.compile(rb'"method": "([a-z/A-Z]{1,80})"')
_NAME = re.compile(rb'"params": \{"(?:name|uri|taskId)": "([ -!#-\[\]-~]{1,300})"')


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """The last message of a response, sent as JSON or as an event stream."""
    body = response.text
    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ") and len(line) > 6]
    answer: dict[str, Any] = json.loads(data[-1] if data else body)
    return answer


@asynccontextmanager
async def http_client(address: str, era: str = LEGACY) -> AsyncIterator[HttpClient]:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        client = HttpClient(address, era, http)
        await client.open()
        yield client


def resident_bytes(pid: int) -> int:
    """The memory of a process at this moment; 0 if unknown."""
    if not sys.platform.startswith("linux"):
        return 0
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
