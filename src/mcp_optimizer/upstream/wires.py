"""The wires that reach a server over HTTP: streamable HTTP, and the older SSE transport.

Each hands what it receives to the peer. What a call is answered with on its own response is read in the
caller's own task: nothing is handed from task to task, and whoever leaves closes the response with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_optimizer.json_text import parsed
from mcp_optimizer.upstream.connections import KeptConnections
from mcp_optimizer.upstream.large import LARGE, read_large
from mcp_optimizer.upstream.peer import ConnectionLost, Message, Peer, RpcError, to_wire
from mcp_optimizer.upstream.spec import ServerSpec
from mcp_optimizer.upstream.stdio import ChildProcess, lines

_CONNECT_TIMEOUT = 10.0
_IDLE = 3.0
"""Seconds that an idle connection is kept: less than servers keep theirs (often 5), so that none is closed by the
server at the moment at which it is used."""
_SESSION_HEADER = "mcp-session-id"
_VERSION_HEADER = "mcp-protocol-version"
_RECONNECT = 1.0
"""Seconds before a stream that ended is opened again, if the server does not say."""
_LONGEST_FIELD = 64
"""Bytes in which the name of a field of an event ends."""
_MOST_RECONNECTS = 3
"""Times in a row that nothing comes of it."""

_STATUS_ADVICE = {
    401: " (not authorised: check its headers)",
    403: " (forbidden: check its headers)",
    404: " (not found: check its url)",
    405: " (wrong method: check its url and type)",
}


@dataclass
class Evidence:
    """What can be seen of a server besides its answers; it outlives the session, to say why that ended."""

    child: ChildProcess | None = None
    http_status: int | None = None

    def epitaph(self) -> str:
        """Why the session ended, as far as can be told; empty when nothing is known."""
        if self.child is not None:
            return self.child.epitaph()
        if self.http_status is not None and self.http_status >= 400:
            return f"it answers with HTTP status {self.http_status}{_STATUS_ADVICE.get(self.http_status, '')}"
        return ""


@cache
def _ssl_context() -> Any:
    # Building one costs about 40 ms; every HTTP upstream shares it.
    return httpx2.create_ssl_context()


def http_client(spec: ServerSpec) -> httpx2.AsyncClient:
    """A client for one server, through the proxy that the environment names for it, if any."""
    # No read timeout: a stream may be silent for hours, and each call has its own deadline.
    timeout = httpx2.Timeout(_CONNECT_TIMEOUT, read=None)
    # How many calls may be under way is decided elsewhere, and streams stay open for hours: any number is opened.
    if _is_proxied(httpx2.URL(spec.url)):
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE)
        return httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout, verify=_ssl_context(), limits=limits)
    transport = KeptConnections(_ssl_context, _IDLE)
    return httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout, transport=transport)


def _is_proxied(url: httpx2.URL) -> bool:
    return not getproxies().keys().isdisjoint({url.scheme, "all"}) and not proxy_bypass(url.host)


@asynccontextmanager
async def streamable_http(spec: ServerSpec, peer: Peer, evidence: Evidence) -> AsyncIterator[None]:
    """Bind the peer to a server at a URL; on the way out, end the session there."""
    async with http_client(spec) as client:
        wire = _StreamableHttp(spec.url, client, peer, evidence)
        peer.bind(wire)
        try:
            yield
        finally:
            peer.close()
            with anyio.CancelScope(shield=True):
                await wire.end()


class _StreamableHttp:
    """A POST for each message; its response is the answer, or a stream of messages that ends with it."""

    def __init__(self, url: str, client: httpx2.AsyncClient, peer: Peer, evidence: Evidence) -> None:
        self._url = httpx2.URL(url)
        self._client = client
        self._peer = peer
        self._evidence = evidence
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        self._listening: asyncio.Task[None] | None = None

    async def deliver(self, message: Message, headers: Mapping[str, str]) -> None:
        method = message.get("method")
        if method == "initialize":
            # What a probe in the newer era left behind must not reach the handshake.
            self._headers.pop(_VERSION_HEADER, None)
        elif (version := headers.get(_VERSION_HEADER)) is not None:
            self._headers[_VERSION_HEADER] = version
        if method == "notifications/cancelled" and self._headers.get(_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            # In the newer era closing the response was the message.
            return
        request = self._client.build_request(
            "POST", self._url, content=to_wire(message), headers={**self._headers, **headers}
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                await self._take(response, message)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error
        if method == "notifications/initialized" and _SESSION_HEADER in self._headers:
            self._listening = asyncio.create_task(self._listen())

    async def _take(self, response: httpx2.Response, message: Message) -> None:
        status = self._evidence.http_status = response.status_code
        asked = message["id"] if "method" in message and "id" in message else None
        if message.get("method") == "initialize" and (session := response.headers.get(_SESSION_HEADER)):
            self._headers[_SESSION_HEADER] = session
        if status == 404 and _SESSION_HEADER in self._headers:
            self._peer.close()
            raise ConnectionLost("it no longer knows the session")
        if response.has_redirect_location:
            raise RpcError(types.INVALID_REQUEST, f"it redirects to {response.headers['location']}: use that url")
        kind = response.headers.get("content-type", "")
        if kind.startswith("text/event-stream") and status < 400:
            await self._read_stream(response, asked)
        elif kind.startswith("application/json"):
            answer = await _json(await _body(response))
            # An error of the transport has no id: it answers what was sent.
            if asked is not None and isinstance(answer, dict) and answer.get("id") is None:
                answer["id"] = asked
            self._peer.receive(answer, asked)
            if asked is not None and not isinstance(answer, dict | list):
                raise _refused(status)
        elif asked is not None:
            raise _refused(status)

    async def _read_stream(self, response: httpx2.Response, asked: int | None) -> None:
        """Until the answer is there; a server may close the stream before, and go on where it is asked to."""
        last_event, pause = await self._read_events(response, asked, None)
        failures = 0
        while asked is not None and self._peer.awaits(asked):
            if last_event is None or failures >= _MOST_RECONNECTS:
                raise RpcError(types.CONNECTION_CLOSED, "the stream ended without an answer")
            await self._peer.let_go(asked)
            await asyncio.sleep(pause)
            failures += 1
            async with self._client.stream(
                "GET", self._url, headers={**self._headers, "last-event-id": last_event}
            ) as again:
                if again.status_code < 400:
                    newest, pause = await self._read_events(again, asked, last_event)
                    failures = failures if newest == last_event else 0
                    last_event = newest

    async def _read_events(
        self, response: httpx2.Response, asked: int | None, last_event: str | None
    ) -> tuple[str | None, float]:
        pause = _RECONNECT
        async for event in _events(response):
            if event.get("id"):
                last_event = event["id"].decode("latin-1")
            with contextlib.suppress(ValueError):
                pause = int(event.get("retry", b"")) / 1000
            if (data := event.get("data")) and event.get("event", b"message") == b"message":
                self._peer.receive(await _json(data), asked)
                if asked is not None and not self._peer.awaits(asked):
                    break
        return last_event, pause

    async def _listen(self) -> None:
        """Keep the stream open on which an older server says what belongs to no call."""
        headers, failures = dict(self._headers), 0
        while failures < _MOST_RECONNECTS:
            pause = _RECONNECT
            try:
                async with self._client.stream("GET", self._url, headers=headers) as response:
                    if response.status_code >= 400:
                        # It has no such stream.
                        return
                    failures = 0
                    last_event, pause = await self._read_events(response, None, headers.get("last-event-id"))
                    headers |= {"last-event-id": last_event} if last_event else {}
            except httpx2.HTTPError:
                failures += 1
            await asyncio.sleep(pause)

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        if _SESSION_HEADER in self._headers:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    await self._client.delete(self._url, headers=self._headers)


def _refused(status: int) -> RpcError:
    return RpcError(types.INVALID_REQUEST, f"it answers with HTTP status {status}{_STATUS_ADVICE.get(status, '')}")


async def _body(response: httpx2.Response) -> bytes | bytearray:
    """All of it; a large one grows where it stands, so that its end is no great copy."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
    return body


async def _json(data: bytes | bytearray) -> Any:
    try:
        return parsed(data) if len(data) < LARGE else await asyncio.to_thread(read_large, data, parsed)
    except ValueError:
        return None


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, bytearray]]:
    """The events of a stream, each as its fields."""
    fields: dict[str, bytearray] = {}
    async for line in lines(response.aiter_bytes()):
        # A large one is ours to shorten where it stands; a slice would be a copy.
        rest = line if isinstance(line, bytearray) else bytearray(line)
        if rest.endswith(b"\r"):
            del rest[-1:]
        if not rest:
            if fields:
                yield fields
            fields = {}
        elif not rest.startswith(b":"):
            colon = rest.find(b":", 0, _LONGEST_FIELD)
            field = rest[: colon if colon >= 0 else _LONGEST_FIELD].decode(errors="replace")
            begin = len(rest) if colon < 0 else colon + 2 if rest.startswith(b" ", colon + 1) else colon + 1
            del rest[:begin]
            if field == "data" and (data := fields.get("data")) is not None:
                data += b"\n"
                data += rest
            else:
                fields[field] = rest
    if fields:
        yield fields


@asynccontextmanager
async def older_sse(spec: ServerSpec, peer: Peer, evidence: Evidence) -> AsyncIterator[None]:
    """Bind the peer to a server of the older transport, through the SDK's client for it."""

    async def record(response: httpx2.Response) -> None:
        evidence.http_status = response.status_code

    def client(*_args: Any, **_fields: Any) -> httpx2.AsyncClient:
        made = http_client(spec)
        made.event_hooks = {"response": [record]}
        return made

    async with sse_client(spec.url, httpx_client_factory=client) as (incoming, outgoing):

        async def receive() -> None:
            async for item in incoming:
                if isinstance(item, SessionMessage):
                    peer.receive(item.message.model_dump(by_alias=True, exclude_unset=True))
            peer.close()

        class _Outgoing:
            async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
                try:
                    await outgoing.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    raise ConnectionLost from None

        peer.bind(_Outgoing())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            try:
                yield
            finally:
                peer.close()
                tasks.cancel_scope.cancel()
