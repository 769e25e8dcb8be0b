"""Connects a peer to its server: a child process, streamable HTTP or the SSE transport. Knows no handshake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp_optimizer.upstream.authorization import Authorization, Authorize, nobody
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.legacy_sse import legacy_sse
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.stdio import run_child
from mcp_optimizer.upstream.streamable_http import streamable_http

Connect = Callable[[ServerSpec, Transport, Peer, Diagnostics], AbstractAsyncContextManager[None]]
"""Binds a peer to a server for as long as the context is open."""


def connecting(authorize: Authorize = nobody, *, network: bool = True) -> Connect:
    """The real transports; `authorize` says how servers over HTTP are told who calls, `network` whether child processes
    get our variables for proxies and certificates.
    """

    def connect(
        spec: ServerSpec, transport: Transport, peer: Peer, diagnostics: Diagnostics
    ) -> AbstractAsyncContextManager[None]:
        return _connected(spec, transport, peer, diagnostics, authorize(spec), network=network)

    return connect


connected = connecting()


def one_by_one(connect: Connect, pacer: Pacer) -> Connect:
    """The same, but thousands of servers that start in one turn of the event loop are connected in as many turns."""

    @asynccontextmanager
    async def begin(
        spec: ServerSpec, transport: Transport, peer: Peer, diagnostics: Diagnostics
    ) -> AsyncIterator[None]:
        await pacer.to_begin()
        async with connect(spec, transport, peer, diagnostics):
            yield

    return begin


@asynccontextmanager
async def _connected(
    spec: ServerSpec,
    transport: Transport,
    peer: Peer,
    diagnostics: Diagnostics,
    authorization: Authorization | None,
    *,
    network: bool,
) -> AsyncIterator[None]:
    if authorization is not None:
        diagnostics.tells(authorization.secrets)
    if transport is Transport.STDIO:
        async with run_child(spec, peer, diagnostics.heard, network=network) as child:
            diagnostics.runs(child)
            yield
    elif transport is Transport.HTTP:
        async with streamable_http(spec, peer, diagnostics, authorization):
            yield
    else:
        async with legacy_sse(spec, peer, diagnostics, authorization):
            yield
