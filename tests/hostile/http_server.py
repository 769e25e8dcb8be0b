"""A hostile MCP server over HTTP, written on bare connections: streamable HTTP of either era, or the SSE transport.

Runs inside a test, or in its own process: python -m tests.hostile.http_server WIRE PORT MODE_FILE [--input NAME]
[--scale N] [--seed N] [--nice]. When it turns good, it forgets all earlier sessions and closes their connections.
Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile import honest
from tests.hostile.deeds import BEGIN, HELLO, HTTP, HTTP_MODERN, SSE, STREAM, Asked, Deed, Exit, Pause, Say, Wire
from tests.hostile.inputs import INPUTS
from tests.hostile.mode import GOOD, MUTATED, FileMode, Mode
from tests.hostile.mutate import ServerMutations

_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_CHANGED = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
_LARGEST_HEAD = 1 << 20


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Cut(Exception):
    """Closes the connection."""


class HttpServer:
    """One server on one port."""

    def __init__(self, wire: str, mode: Mode, *, scale: int = 1, seed: int = 0) -> None:
        self._wire = wire
        self._mode = mode
        self._scale = scale
        self._mutations = ServerMutations(seed, 0, is_http=wire != SSE)
        self._is_modern = wire == HTTP_MODERN
        self._sessions: set[str] = set()
        self._last_session = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.StreamWriter] = set()
        self._streams: dict[str, asyncio.StreamWriter] = {}

    @property
    def path(self) -> str:
        return "/sse" if self._wire == SSE else "/mcp"

    async def serve(self, listening: socket.socket) -> None:
        async with await asyncio.start_server(self._connected, sock=listening, limit=_LARGEST_HEAD):
            try:
                await self._turn_good_when_told()
            finally:
                self._cut()

    async def _turn_good_when_told(self) -> None:
        was_hostile = False
        while True:
            is_hostile = self._mode.current() != GOOD
            if was_hostile and not is_hostile:
                for writer in self._listening:
                    with contextlib.suppress(OSError):
                        writer.write(_event(_CHANGED))
                self._sessions.clear()
                # The gateway must receive the notification before its connection is closed.
                await asyncio.sleep(0.05)
                self._cut()
            was_hostile = is_hostile
            await asyncio.sleep(0.02)

    def _cut(self) -> None:
        for task in list(self._connections):
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await _request(reader)) is not None:
                await self._respond(request, reader, writer)
        except (Cut, OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            self._listening.discard(writer)
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._wire == SSE:
            await self._respond_on_stream(request, reader, writer)
            return
        session = request.headers.get("mcp-session-id", "")
        if request.method == "GET":
            if session not in self._sessions:
                await _send(writer, _response(405))
                return
            await self._hold_stream(reader, writer)
        elif request.method != "POST":
            await _send(writer, _response(200))
            return
        message = json.loads(request.body)
        method = message.get("method") if isinstance(message, dict) else None
        is_first = method in ("initialize", "server/discover")
        if not self._is_modern and not is_first and session not in self._sessions:
            await _send(writer, _response(404))
        elif method == "subscriptions/listen" and self._is_modern:
            await self._hold_stream(reader, writer)
        else:
            await self._answer(message, method, writer)

    async def _answer(self, message: Any, method: Any, writer: asyncio.StreamWriter) -> None:
        if not isinstance(method, str) or "id" not in message:
            await _send(writer, _response(202))
            return
        text = honest.answer(message, is_modern=self._is_modern)
        session = ""
        if method == "initialize" and not self._is_modern:
            self._last_session += 1
            session = f"session-{self._last_session}"
            self._sessions.add(session)
        is_hello = method == ("server/discover" if self._is_modern else "initialize")
        asked = Asked(method, message["id"], text, self._scale)
        deeds = self._at(HELLO if is_hello else method, asked)
        if deeds is None:
            deeds = [Say(text)]
        await self._perform(deeds, writer, session)

    def _at(self, occasion: str, asked: Asked) -> Sequence[Deed] | None:
        """What the current input does on this occasion; None if it does nothing."""
        name = self._mode.current()
        if name == MUTATED:
            deeds, kinds = self._mutations.at(occasion, asked)
            for kind in kinds:
                self._mode.done(kind)
            return deeds or None
        if name == GOOD or INPUTS[name].at != occasion:
            return None
        self._mode.done(name)
        return list(INPUTS[name].deeds(asked))

    async def _perform(self, deeds: Sequence[Deed], writer: asyncio.StreamWriter, session: str = "") -> None:
        """Send a single message as a JSON body, several as a stream of events, and raw bytes as they are."""
        if len(deeds) == 1 and isinstance(deeds[0], Say) and deeds[0].times == 1:
            await _send(writer, _response(200, _bytes(deeds[0].text), session))
            return
        if any(isinstance(deed, Say) for deed in deeds):
            more = f"mcp-session-id: {session}\r\n".encode() if session else b""
            await _send(writer, _EVENTS.replace(b"connection", more + b"connection"))
        await self._do(deeds, writer)
        raise Cut

    async def _do(self, deeds: Iterable[Deed], writer: asyncio.StreamWriter) -> None:
        for deed in deeds:
            if isinstance(deed, Say):
                await _send(writer, _event(deed.text), deed.times)
            elif isinstance(deed, Wire):
                await _send(writer, deed.data, deed.times)
            elif isinstance(deed, Pause):
                await asyncio.sleep(deed.seconds)
            elif isinstance(deed, Exit):
                raise Cut

    async def _hold_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The stream that belongs to no call: carries the input, if it has one for it, then stays open and silent."""
        await _send(writer, _EVENTS)
        self._listening.add(writer)
        await self._do(self._at(STREAM, Asked(STREAM, None, "", self._scale)) or (), writer)
        await _left(reader)
        raise Cut

    async def _respond_on_stream(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """The SSE transport: all responses come on the one stream that the client opened first."""
        if request.method == "GET":
            self._last_session += 1
            session = f"session-{self._last_session}"
            begin = self._at(BEGIN, Asked(BEGIN, None, f"/messages?session={session}", self._scale))
            if begin is not None:
                await self._do(begin, writer)
                raise Cut
            self._streams[session] = writer
            try:
                await _send(writer, _EVENTS + f"event: endpoint\ndata: /messages?session={session}\n\n".encode())
                await _left(reader)
                raise Cut
            finally:
                del self._streams[session]
        stream = self._streams.get(request.path.rpartition("=")[2])
        if request.method != "POST" or stream is None:
            await _send(writer, _response(404))
            return
        await _send(writer, _response(202))
        message = json.loads(request.body)
        task = asyncio.create_task(self._answer_on_stream(message, stream))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _answer_on_stream(self, message: Any, stream: asyncio.StreamWriter) -> None:
        method = message.get("method") if isinstance(message, dict) else None
        with contextlib.suppress(OSError):
            if method == "notifications/initialized":
                await self._do(self._at(STREAM, Asked(STREAM, None, "", self._scale)) or (), stream)
            if not isinstance(method, str) or "id" not in message:
                return
            text = honest.answer(message, is_modern=False)
            asked = Asked(method, message["id"], text, self._scale)
            deeds = self._at(HELLO if method == "initialize" else method, asked)
            try:
                await self._do([Say(text)] if deeds is None else deeds, stream)
            except Cut:
                stream.transport.abort()


async def _left(reader: asyncio.StreamReader) -> None:
    """Wait until the other side closes the connection."""
    while not reader.at_eof():
        await asyncio.sleep(0.1)


async def _request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return None


def _response(status: int, body: bytes = b"", session: str = "") -> bytes:
    more = f"mcp-session-id: {session}\r\n" if session else ""
    kind = "content-type: application/json\r\n" if body else ""
    return f"HTTP/1.1 {status} X\r\n{kind}{more}content-length: {len(body)}\r\n\r\n".encode() + body


def _event(text: str | bytes) -> bytes:
    return b"".join(b"data: " + line + b"\n" for line in _bytes(text).split(b"\n")) + b"\n"


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


async def _send(writer: asyncio.StreamWriter, data: bytes, times: int = 1) -> None:
    together = max(1, min(times, (64 * 1024) // max(1, len(data))))
    while times > 0:
        writer.write(data * min(together, times))
        await writer.drain()
        if writer.is_closing():
            raise Cut
        times -= together


@asynccontextmanager
async def hostile_http(wire: str, mode: Mode, *, scale: int = 1, seed: int = 0) -> AsyncIterator[str]:
    """Run a server in this event loop. Yields its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(wire, mode, scale=scale, seed=seed)
    serving = asyncio.create_task(server.serve(listening))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{server.path}"
    finally:
        serving.cancel()
        await asyncio.wait({serving})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("wire", choices=[HTTP, HTTP_MODERN, SSE])
    parser.add_argument("port", type=int)
    parser.add_argument("mode_file", type=Path)
    parser.add_argument("--input", default="")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nice", action="store_true", help="leave the cores to whoever is measured")
    options = parser.parse_args()
    if options.nice:
        os.nice(19)
    mode = FileMode(options.mode_file, options.input)
    server = HttpServer(options.wire, mode, scale=options.scale, seed=options.seed)
    asyncio.run(server.serve(socket.create_server(("127.0.0.1", options.port))))


if __name__ == "__main__":
    main()
