"""Streamable HTTP to a server that closes streams early, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.endings import ServerGone
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.streamable_http import streamable_http

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
