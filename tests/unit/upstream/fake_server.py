"""A server behind a fake transport: no process, no network. A test decides how each of its lives goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.upstream.diagnostics import Diagnostics, Failure
from mcp_optimizer.upstream.peer import Message, Peer
from mcp_optimizer.upstream.request_errors import RpcError

Reply = dict[str, Any] | Exception | None
"""A result, an error, or silence. An `RpcError` is sent as a JSON-RPC error; any other error breaks the exchange."""

NOT_MODERN = RpcError(-32601, "Method not found: server/discover")
LEGACY = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {}}
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "fake"}}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}", "inputSchema": {"type": "object"}}


def called(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@dataclass
class Life:
    """One connection to the server, from its opening to its end."""

    server: FakeServer
    peer: Peer
    diagnostics: Diagnostics
    sent: list[Message] = field(default_factory=list)
    has_ended: bool = False

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        self.sent.append(message)
        self.server.has_received.set()
        if "id" not in message or "method" not in message:
            return
        reply = self.server.reply(message)
        if isinstance(reply, RpcError):
            error = {"code": reply.code, "message": reply.message, "data": reply.data}
            self.peer.receive({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif isinstance(reply, Exception):
            raise reply
        elif reply is not None:
            self.peer.receive({"jsonrpc": "2.0", "id": message["id"], "result": reply})

    def methods(self) -> list[str]:
        return [message["method"] for message in self.sent if "method" in message]

    def say(self, method: str, params: dict[str, Any] | None = None, number: Any = None) -> None:
        """Send a notification, or with a number a question."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.peer.receive(message if number is None else {**message, "id": number})

    def die(self, why: str = "it exited with code 1") -> None:
        self.diagnostics.judge(Failure(FailureKind.EXITED, why))
        self.peer.close()


@dataclass
class FakeServer:
    """Answers by method. An answer may be a function of the request's params."""

    answers: dict[str, Reply | Callable[[dict[str, Any]], Reply]] = field(default_factory=dict)
    is_modern: bool = False
    tools: list[dict[str, Any]] = field(default_factory=lambda: [tool("add")])
    refuses: Exception | None = None
    """Raised instead of a connection."""
    lives: list[Life] = field(default_factory=list)
    has_received: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def reply(self, message: Message) -> Reply:
        method, params = message["method"], message.get("params") or {}
        if method in self.answers:
            answer = self.answers[method]
            return answer(params) if callable(answer) else answer
        known: dict[str, Reply] = {
            "server/discover": MODERN if self.is_modern else NOT_MODERN,
            "initialize": NOT_MODERN if self.is_modern else LEGACY,
            "tools/list": {"tools": self.tools},
            "tools/call": called("done"),
        }
        return known.get(method, {})

    @asynccontextmanager
    async def connect(
        self, _spec: ServerSpec, _transport: Transport, peer: Peer, diagnostics: Diagnostics
    ) -> AsyncIterator[None]:
        if self.refuses is not None:
            raise self.refuses
        life = Life(self, peer, diagnostics)
        self.lives.append(life)
        peer.bind(life)
        try:
            yield
        finally:
            peer.close()
            life.has_ended = True

    async def until_received(self, method: str, times: int = 1) -> None:
        """Wait until so many requests of a method have arrived, over all lives."""
        async with asyncio.timeout(10):
            while sum(life.methods().count(method) for life in self.lives) < times:
                self.has_received.clear()
                await self.has_received.wait()


class FakeServers:
    """Several by name."""

    def __init__(self, **servers: FakeServer) -> None:
        self.named = servers

    def connect(self, spec: ServerSpec, transport: Transport, peer: Peer, diagnostics: Diagnostics) -> Any:
        return self.named[spec.name].connect(spec, transport, peer, diagnostics)
