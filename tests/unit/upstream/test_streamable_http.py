"""Streamable HTTP to a server that closes streams early, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.request_errors import ServerGone
from mcp_optimizer.upstream.transports.streamable_http import streamable_http

EARLY_END = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nid: 1\nretry: 200\ndata:\n\n"
)


async def test_a_session_that_ends_while_a_call_waits_to_resume_its_stream_is_gone() -> None:
    served = asyncio.Event()

    async def end_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(EARLY_END)
        writer.write_eof()
        # The client closes its end too, once it has read this one.
        await reader.read()
        writer.close()
        served.set()

    server = await asyncio.start_server(end_early, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    spec = ServerSpec(name="early", transport=Transport.HTTP, url=f"http://127.0.0.1:{port}/mcp")
    async with server:
        peer = Peer(lambda _method, _params: None)
        async with streamable_http(spec, peer, Diagnostics()):
            calling = asyncio.create_task(peer.request("tools/call", {"name": "slow"}, 10.0))
            await asyncio.wait_for(served.wait(), 10)
        with pytest.raises(ServerGone):
            await asyncio.wait_for(calling, 10)


async def test_calls_that_are_answered_on_streams_share_a_connection() -> None:
    connections = 0
    calls: list[bytes] = []

    async def answer_and_end_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                calls.append(await reader.readuntil(b"}}"))
                event = b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % len(calls)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                writer.write(head + b"%x\r\n%b\r\n" % (len(event), event))
                # The end comes by itself, when the caller has its answer.
                await asyncio.wait_for(answered.wait(), 5)
                answered.clear()
                writer.write(b"0\r\n\r\n")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    answered, gone = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(answer_and_end_later, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    spec = ServerSpec(name="near", transport=Transport.HTTP, url=f"http://127.0.0.1:{port}/mcp")
    async with server:
        peer = Peer(lambda _method, _params: None)
        async with streamable_http(spec, peer, Diagnostics()):
            for _ in range(3):
                await peer.request("tools/call", {"name": "quick"}, 10.0)
                answered.set()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(gone.wait(), 0.1)
        await asyncio.wait_for(gone.wait(), 10)
    assert len(calls) == 3
    assert connections == 1
