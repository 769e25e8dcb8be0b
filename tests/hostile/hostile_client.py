"""A client that sends arbitrary data over bare connections, and checks whether it gets a response."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.hostile.client_inputs import LEGACY, MODERN, NONE, ClientInput

LONGEST = 20.0
"""Seconds after which a request counts as never answered."""
_PATIENCE = 0.3
"""Seconds to keep a request open that may stay unanswered."""
_HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hostile", "version": "1"}},
}


class HostileClient:
    """A client with one session, for inputs that need it."""

    def __init__(self, origin: str) -> None:
        self._address = urlsplit(origin)
        self._session = ""

    async def connect(self) -> None:
        head, _ = await self._exchange(self._written("POST", "/mcp", {}, json.dumps(_HELLO).encode()))
        lines = [line.partition(": ") for line in head.split("\r\n")]
        self._session = next((value for name, _, value in lines if name.lower() == "mcp-session-id"), "")

    async def show(self, shown: ClientInput) -> str:
        """Send the input. Returns what was wrong with the response, or nothing."""
        for _ in range(shown.times):
            try:
                head = await self.answer(shown)
            except TimeoutError:
                if not shown.stays_open:
                    return f"it was not answered within {LONGEST:g} s"
            else:
                if head.startswith("HTTP/1.1 500"):
                    return f"it was answered with {head.splitlines()[0]}"
        return ""

    async def answer(self, shown: ClientInput) -> str:
        """The head of the response; empty if the connection was closed without one."""
        data = shown.raw or self._request(shown)
        head, _ = await self._exchange(data, _PATIENCE if shown.stays_open else LONGEST)
        return head

    def _request(self, shown: ClientInput) -> bytes:
        headers: dict[str, str] = {}
        if shown.era == LEGACY:
            headers = {"mcp-session-id": self._session, "mcp-protocol-version": "2025-11-25"}
        elif shown.era == MODERN:
            headers = {"mcp-protocol-version": "2026-07-28", **_said_twice(shown.body)}
        else:
            assert shown.era == NONE
        return self._written(shown.verb, shown.path, {**headers, **shown.headers}, shown.body)

    def _written(self, verb: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        given = {
            "host": self._address.netloc,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body

    async def _exchange(self, data: bytes, seconds: float = LONGEST) -> tuple[str, bytes]:
        """Everything received until the connection is closed. The head is empty if nothing came."""
        assert self._address.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._address.port)
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(OSError):
                    writer.write(data)
                    await writer.drain()
                    answer = await reader.read()
                    head, _, body = answer.partition(b"\r\n\r\n")
                    return head.decode("latin-1"), body
            return "", b""
        finally:
            writer.transport.abort()


def _said_twice(body: bytes) -> dict[str, str]:
    """The values that a modern request repeats in its headers, if a header can hold them."""
    try:
        message = json.loads(body)
        method, params = message.get("method"), message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
    except (ValueError, AttributeError, RecursionError):
        return {}
    said = {"mcp-method": method} if isinstance(method, str) and method.isascii() and len(method) < 200 else {}
    return said | ({"mcp-name": name} if isinstance(name, str) and name.isascii() and len(name) < 200 else {})
