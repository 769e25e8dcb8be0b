"""A server over HTTP: streamable HTTP, one POST per message, whose HTTP response is the result or a stream that ends
with it; or the older SSE transport.

The HTTP response to a call is read in the caller's own task: nothing passes between tasks, and cancelling the call
closes the HTTP response. A POST that breaks is one lost exchange: the server may still be alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import httpx2

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.protocol import INVALID_REQUEST, MODERN_PROTOCOL_VERSIONS
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.diagnostics import Diagnostics, redirected, refused_with
from mcp_optimizer.upstream.peer import Message, Peer, to_wire
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError, ServerGone
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine
from mcp_optimizer.upstream.transports.http_client import (
    AuthorizedHttp,
    events,
    http_client,
    json_of,
    leave_rest,
    too_long,
    whole_body,
)

logger = logging.getLogger(__name__)

_SESSION_HEADER = "mcp-session-id"
_VERSION_HEADER = "mcp-protocol-version"
_SESSION_ID = regex(r"[\x21-\x7e]{1,1024}")
"""Visible ASCII, as the protocol requires. The maximum length is ours; the protocol sets none."""
_RECONNECT = 1.0
"""Seconds before a stream that ended is reopened, if the server does not specify it."""
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 60.0
_MOST_RECONNECTS = 3
"""Consecutive reconnects without any event."""
_GOODBYE = 1.0
"""Seconds for telling the server that its session ends, which it will notice anyway."""


@asynccontextmanager
async def streamable_http(
    spec: ServerSpec, peer: Peer, diagnostics: Diagnostics, authorization: Authorization | None = None
) -> AsyncIterator[None]:
    """Bind the peer to a server at a URL; on exit, end the session there."""
    async with http_client(spec, peer.limits) as client:
        wire = _StreamableHttp(spec.url, AuthorizedHttp(client, authorization), peer, diagnostics)
        peer.bind(wire)
        try:
            yield
        finally:
            peer.close()
            with anyio.CancelScope(shield=True):
                await wire.end()


class _StreamableHttp:
    def __init__(self, url: str, http: AuthorizedHttp, peer: Peer, diagnostics: Diagnostics) -> None:
        self._url = httpx2.URL(url)
        self._http = http
        self._peer = peer
        self._most = peer.limits.message_bytes
        self._diagnostics = diagnostics
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        self._listening = BackgroundTasks(logger, "Listening to a server failed")

    async def deliver(self, message: Message, headers: Mapping[str, str]) -> None:
        method = message.get("method")
        if method == "initialize":
            # The version header of a modern probe must not reach the legacy handshake.
            self._headers.pop(_VERSION_HEADER, None)
        elif (version := headers.get(_VERSION_HEADER)) is not None:
            self._headers[_VERSION_HEADER] = version
        if method == "notifications/cancelled" and self._headers.get(_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            # In modern, closing the response is the cancellation.
            return
        with BrokenExchanges():
            response = await self._http.send("POST", self._url, {**self._headers, **headers}, to_wire(message))
            try:
                await self._take(response, message)
            finally:
                await response.aclose()
        if method == "notifications/initialized" and _SESSION_HEADER in self._headers:
            self._listening.spawn(self._listen())

    async def _take(self, response: httpx2.Response, message: Message) -> None:
        status = response.status_code
        kind = response.headers.get("content-type", "")
        self._diagnostics.answered(status, kind)
        asked = message["id"] if "method" in message and "id" in message else None
        if message.get("method") == "initialize" and (session := response.headers.get(_SESSION_HEADER)):
            if not _SESSION_ID.fullmatch(session):
                raise RpcError(INVALID_REQUEST, "its session id is not valid in an HTTP header")
            self._headers[_SESSION_HEADER] = session
        if status == 404 and _SESSION_HEADER in self._headers:
            self._peer.close()
            raise ServerGone("it no longer knows the session")
        if response.has_redirect_location:
            raise RpcError(INVALID_REQUEST, redirected(str(self._url), response.headers["location"]))
        if kind.startswith("text/event-stream") and status < 400:
            await self._read_stream(response, asked)
        elif kind.startswith("application/json"):
            await self._read_body(response, asked)
        elif asked is not None:
            raise _refused(status, kind)

    async def _read_body(self, response: httpx2.Response, asked: int | None) -> None:
        answer = await json_of(await whole_body(response, self._most))
        # An error of the transport has no id; it answers the message that was sent.
        if asked is not None and isinstance(answer, dict) and answer.get("id") is None:
            answer["id"] = asked
        self._peer.receive(answer, asked)
        if asked is not None and self._peer.awaits(asked):
            if response.status_code >= 400:
                raise _refused(response.status_code)
            raise ExchangeLost("its response contains no readable message")

    async def _read_stream(self, response: httpx2.Response, asked: int | None) -> None:
        """Read until the response is complete; a server may close the stream early and continue it on request."""
        last_event, pause = await self._read_events(response, asked, None)
        failures = 0
        while asked is not None and self._peer.awaits(asked):
            if last_event is None or failures >= _MOST_RECONNECTS:
                raise ExchangeLost("the stream ended without a response")
            await self._peer.release_streams(asked)
            await asyncio.sleep(pause)
            if self._peer.closed.is_set():
                # The session ended during the pause, and its HTTP client with it.
                raise ServerGone
            failures += 1
            resumed = {**self._headers, "last-event-id": last_event}
            async with self._http.stream("GET", self._url, resumed) as again:
                if again.status_code < 400:
                    newest, pause = await self._read_events(again, asked, last_event)
                    failures = failures if newest == last_event else 0
                    last_event = newest

    async def _read_events(
        self, response: httpx2.Response, asked: int | None, last_event: str | None
    ) -> tuple[str | None, float]:
        pause = _RECONNECT
        async for event in events(response, self._most):
            last_event = event.id or last_event
            if event.retry is not None:
                pause = min(max(event.retry, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            if event.is_overlong:
                raise too_long(self._most)
            if event.data and event.kind == "message":
                message = await json_of(event.data)
                if message is None and asked is not None:
                    raise ExchangeLost("its stream contains a message that cannot be read")
                self._peer.receive(message, asked)
                if asked is not None and not self._peer.awaits(asked):
                    leave_rest(response)
                    break
            if self._peer.is_crowded:
                await self._peer.room()
        return last_event, pause

    async def _listen(self) -> None:
        """Keep the stream open on which a legacy server sends messages that belong to no call."""
        headers, failures, patience = dict(self._headers), 0, _RECONNECT
        loop = asyncio.get_running_loop()
        while failures < _MOST_RECONNECTS:
            opened_at, pause = loop.time(), _RECONNECT
            try:
                async with self._http.stream("GET", self._url, headers) as response:
                    if response.status_code >= 400:
                        # The server does not offer this stream.
                        return
                    failures = 0
                    last_event, pause = await self._read_events(response, None, headers.get("last-event-id"))
                    headers |= {"last-event-id": last_event} if last_event else {}
            except (httpx2.HTTPError, ExchangeLost, LoginNeeded):
                failures += 1
            # A stream that ends as soon as it opens is requested less and less often.
            patience = _RECONNECT if loop.time() - opened_at > _LONGEST_PAUSE else min(2 * patience, _LONGEST_PAUSE)
            await asyncio.sleep(max(pause, patience / 2))

    async def end(self) -> None:
        await self._listening.close()
        if _SESSION_HEADER in self._headers:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError, ExchangeLost, LoginNeeded):
                async with asyncio.timeout(_GOODBYE), self._http.stream("DELETE", self._url, self._headers):
                    pass


class BrokenExchanges:
    """Turns failures of HTTP itself into a lost exchange."""

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, httpx2.ConnectError):
            raise ExchangeLost("nothing answers at its url", was_sent=False) from error
        if isinstance(error, httpx2.HTTPError | httpx2.StreamError | httpx2.InvalidURL):
            raise ExchangeLost(str(error) or type(error).__name__) from error


def _refused(status: int, content_type: str = "") -> RpcError:
    return RpcError(INVALID_REQUEST, str(refused_with(status, content_type)))


# A server over the SSE transport: one stream for everything it sends, and a URL to post everything to. Not the SDK's
# client, because that reads events of any size and decompresses without a limit.

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
