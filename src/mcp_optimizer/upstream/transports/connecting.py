"""Connects a peer to its server over stdio, streamable HTTP or the SSE transport, and chooses among them.

`TransportChoice` decides what a supervisor tries next after a failed start; `Connect` is the seam that tests replace.
Knows no handshake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.authorization import Authorization, AuthorizeOne, no_authorization
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.peer import Peer
from mcp_optimizer.upstream.transports.stdio import run_child
from mcp_optimizer.upstream.transports.streamable_http import legacy_sse, streamable_http

_NOT_STREAMABLE = (400, 404, 405)
"""HTTP statuses of a server that may speak the SSE transport instead."""


class TransportChoice:
    """The transport and era to try. Some legacy servers exit when probed, and some URLs without a type are SSE."""

    def __init__(self, spec: ServerSpec) -> None:
        self._declared = spec.transport
        self._is_certain = spec.transport_is_certain
        self._exits_when_probed = False
        self.transport = spec.transport

    @property
    def is_legacy(self) -> bool:
        """Whether to begin with `initialize`. The SSE transport is older than modern MCP, so it needs no probe."""
        return self._exits_when_probed or self.transport is Transport.SSE

    def try_another(self, diagnostics: Diagnostics) -> bool:
        """After a failed start, switch to another way of connecting; returns whether to try it at once."""
        if self._declared is Transport.STDIO:
            # If legacy fails too, the next run starts with modern again.
            hung_up = diagnostics.child is not None and diagnostics.child.hung_up
            self._exits_when_probed = not self._exits_when_probed and hung_up
            return self._exits_when_probed
        refused = diagnostics.http_status in _NOT_STREAMABLE
        if self.transport is Transport.HTTP and not self._is_certain and refused:
            self.transport = Transport.SSE
            return True
        self.transport = self._declared
        return False


Connect = Callable[[ServerSpec, Transport, Peer, Diagnostics], AbstractAsyncContextManager[None]]
"""Binds a peer to a server for as long as the context is open."""


def connecting(authorize: AuthorizeOne = no_authorization, *, network: bool = True) -> Connect:
    """The real transports. `authorize` returns the authorizations for HTTP servers. `network`: whether child processes
    get our environment variables for proxies and certificates.
    """

    def connect(
        spec: ServerSpec, transport: Transport, peer: Peer, diagnostics: Diagnostics
    ) -> AbstractAsyncContextManager[None]:
        return _connected(spec, transport, peer, diagnostics, authorize(spec), network=network)

    return connect


connected = connecting()


def one_by_one(connect: Connect, pacer: Pacer) -> Connect:
    """The same, but paced: at most one server begins to connect in each iteration of the event loop."""

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
