"""Connections of HTTP clients end at their limits, with a real uvicorn and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.http_connections import bounded_connections

CHUNK = 1_000_000


class Application:
    """Sends endlessly until the client disconnects, then sets `ended`."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        left = asyncio.create_task(self._left(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not left.done():
            await send({"type": "http.response.body", "body": b"x" * CHUNK, "more_body": True})
            self.sent += CHUNK
            await asyncio.sleep(0)
        self.ended.set()

    async def _left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


@asynccontextmanager
async def served(application: ASGIApp, limits: Limits) -> AsyncIterator[int]:
    config = uvicorn.Config(
        application, http=bounded_connections(limits), ws="none", lifespan="off", log_level="critical", port=0
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def test_a_client_that_never_reads_what_it_is_sent_is_cut_off() -> None:
    application = Application()
    async with served(application, Limits(unread_seconds=0.2)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(application.ended.wait(), 30)
        # Only what fits into the system's buffers was sent, not an endless stream.
        assert application.sent < 50 * CHUNK
        writer.close()


async def test_a_client_that_reads_slowly_is_served_to_the_end() -> None:
    application = Application()
    async with served(application, Limits(unread_seconds=5.0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = 0
        while received < 30 * CHUNK:
            received += len(await reader.read(65_536))
        assert not application.ended.is_set()
        writer.close()
        await asyncio.wait_for(application.ended.wait(), 30)


class Echo:
    """Answers each request with its body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _answers_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(
    ("request_head", "later"),
    [("", b"\n"), ("", b"\r\n"), ("Content-Length: 9\r\n", b"x"), ("", b"GET / HT")],
    ids=["blank", "blank line", "body of what is answered", "part of a request"],
)
async def test_whatever_follows_a_response_keeps_no_connection_open(request_head: str, later: bytes) -> None:
    async with served(_answers_at_once, Limits(request_seconds=0.2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\n{request_head}\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"ok"), 10)
        writer.write(later)
        # Sooner than uvicorn gives up on connections without requests, which ends with the first byte.
        assert await asyncio.wait_for(reader.read(), 4) == b""
        writer.close()


async def test_a_connection_stays_open_after_a_request_that_came_in_two_pieces() -> None:
    async with served(Echo(), Limits(request_seconds=0.2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: local")
        await writer.drain()
        answering = asyncio.create_task(reader.readuntil(b"hello"))
        await asyncio.wait({answering}, timeout=0.05)
        writer.write(b"host\r\nContent-Length: 5\r\n\r\nhello")
        await asyncio.wait_for(answering, 10)
        ending = asyncio.create_task(reader.read())
        assert await asyncio.wait({ending}, timeout=0.5) == (set(), {ending})
        writer.close()
        ending.cancel()


def _offer(body: bytes, connection: str, protocol: str) -> bytes:
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: {connection}\r\n"
    return (
        f"{head}Upgrade: {protocol}\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n\r\n".encode() + body
    )


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
async def test_a_client_that_offers_another_protocol_is_answered_in_this_one(protocol: str) -> None:
    async with served(Echo(), Limits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # The second offer is sent in two pieces and is the last request of its connection.
        first = _offer(b"first", "Upgrade, HTTP2-Settings", protocol)
        second = _offer(b"second", "Upgrade, HTTP2-Settings, close", protocol)
        writer.write(first + second[:-3])
        answered = await asyncio.wait_for(reader.readuntil(b"first"), 10)
        writer.write(second[-3:])
        answered += await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert answered.count(b"HTTP/1.1 200 OK") == 2
    assert b"\r\n\r\nfirst" in answered
    assert answered.endswith(b"\r\n\r\nsecond")


@pytest.mark.slow
async def test_a_flood_of_offers_in_one_piece_is_read_one_after_the_other() -> None:
    count = 2_000
    async with served(Echo(), Limits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"".join(_offer(b"x", "Upgrade", "h2c") for _ in range(count)) + _offer(b"", "Upgrade, close", "h2c")
        )
        answered = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert answered.count(b"HTTP/1.1 200 OK") == count + 1


async def test_what_follows_a_body_is_no_header() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.extend(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n"
    body = b"5\r\nhello\r\n0\r\nAuthorization: Bearer stolen\r\nX-API-Key: stolen\r\nOrigin: http://localhost\r\n\r\n"
    async with served(application, Limits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in (head, body[:12], body[12:]):
            writer.write(piece)
            await writer.drain()
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        writer.close()
    assert b"stolen" not in b"".join(value for _, value in seen)
    assert {name for name, _ in seen} == {b"host", b"transfer-encoding", b"trailer"}
