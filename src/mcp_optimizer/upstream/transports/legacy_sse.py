"""A server over the SSE transport: one stream for everything it sends, and a URL to post everything to.

Not the SDK's client, because that reads events of any size and decompresses without a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import httpx2

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.protocol import INVALID_REQUEST
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.diagnostics import Diagnostics, refused_with
from mcp_optimizer.upstream.peer import Message, Peer, to_wire
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError, ServerGone
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine
from mcp_optimizer.upstream.transports.http_bodies import events, json_of
from mcp_optimizer.upstream.transports.http_client import AuthorizedHttp, http_client
from mcp_optimizer.upstream.transports.streamable_http import BrokenExchanges

_LONGEST_ENDPOINT = 4_000


@asynccontextmanager
async def legacy_sse(
    spec: ServerSpec, peer: Peer, diagnostics: Diagnostics, authorization: Authorization | None = None
) -> AsyncIterator[None]:
    """Bind the peer to a server at a URL while the context is open."""
    async with http_client(spec, peer.limits) as client, anyio.create_task_group() as tasks:
        wire = _LegacySse(httpx2.URL(spec.url), AuthorizedHttp(client, authorization), peer, diagnostics)
        peer.bind(wire)
        tasks.start_soon(wire.read)
        try:
            yield
        finally:
            peer.close()
            tasks.cancel_scope.cancel()


class _LegacySse:
    def __init__(self, url: httpx2.URL, http: AuthorizedHttp, peer: Peer, diagnostics: Diagnostics) -> None:
        self._url = url
        self._http = http
        self._peer = peer
        self._diagnostics = diagnostics
        self._endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        endpoint = await asyncio.shield(self._endpoint)
        headers = {"content-type": "application/json"}
        with BrokenExchanges():
            async with self._http.stream("POST", endpoint, headers, to_wire(message)) as response:
                if (status := response.status_code) >= 300:
                    raise RpcError(INVALID_REQUEST, str(refused_with(status)))

    async def read(self) -> None:
        """Pass on what arrives on the stream, until it ends."""
        reason: Exception = ServerGone("its stream ended")
        try:
            with BrokenExchanges():
                async with self._http.stream("GET", self._url, {"accept": "text/event-stream"}) as response:
                    self._diagnostics.answered(response.status_code, response.headers.get("content-type", ""))
                    if response.status_code == 200:
                        await self._read_events(response)
                    else:
                        reason = ServerGone(f"it answers with HTTP status {response.status_code}")
        except LoginNeeded as needed:
            reason = needed
        except ExchangeLost as error:
            # An exchange that was never sent already carries its reason.
            reason = ServerGone(str(error)) if error.was_sent else error
        finally:
            if not self._endpoint.done():
                self._endpoint.set_exception(reason)
                self._endpoint.exception()
            self._peer.close()

    async def _read_events(self, response: httpx2.Response) -> None:
        async for event in events(response, self._peer.limits.message_bytes):
            if event.is_overlong:
                self._peer.lose_overlong(OverlongLine(b"", b""))
            elif event.kind == "endpoint" and event.data and not self._endpoint.done():
                self._endpoint.set_result(self._within_origin(event.data))
            elif event.kind == "message" and event.data:
                self._peer.receive(await json_of(event.data))
            if self._peer.is_crowded:
                await self._peer.room()

    def _within_origin(self, told: bytearray) -> httpx2.URL:
        """The URL to post to. It must have the server's own origin, because requests carry its secret headers."""
        try:
            url = self._url.join(told[:_LONGEST_ENDPOINT].decode("ascii").strip())
        except (ValueError, httpx2.InvalidURL):
            raise ExchangeLost("the address it wants messages posted to is not a URL") from None
        if (url.scheme, url.host, url.port) != (self._url.scheme, self._url.host, self._url.port):
            raise ExchangeLost("it wants messages posted to a host other than its own")
        return url
