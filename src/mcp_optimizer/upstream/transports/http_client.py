"""The HTTP client for one server: its headers, proxy, kept connections and authorization, and the reading of its
responses within limits.

Used by the HTTP transports; knows no MCP, and nothing of logins. A request that was refused for its headers was not
carried out, so it is sent again if there are other headers.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import httpx2

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.large_messages import LARGE, read_large
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.runtime.outgoing import is_proxied_address
from mcp_optimizer.upstream.authorization import Authorization
from mcp_optimizer.upstream.request_errors import ExchangeLost
from mcp_optimizer.upstream.transports.bounded_lines import EndlessLine, OverlongLine, TimeSlice, lines
from mcp_optimizer.upstream.transports.connections import (
    ArrivingBody,
    KeptConnections,
    Origin,
    origin_of,
    written_headers,
    written_line,
)

# Reads a server's HTTP responses within limits: complete bodies, and the events of a stream. Decompresses the bodies
# itself, because httpx would unpack a kilobyte into a gigabyte before it could be counted.

_PIECE = 256 * 1024
"""Bytes decompressed at a time."""
_GZIP = zlib.MAX_WBITS | 16
_LONGEST_FIELD = 64
"""Maximum bytes of the name of an event's field."""
_LONGEST_ID = 1_000
_ENDLESS = 4
"""A dropped event longer than this multiple of the limit counts as endless."""
_LONGEST_RETRY = 9
"""Maximum digits of the retry time in milliseconds."""


class BodyUnreadable(ExchangeLost):
    """A response is too long, or has an encoding that was not requested."""


def too_long(most: int) -> BodyUnreadable:
    return BodyUnreadable(f"its response is longer than {most:,} bytes (limits.message_bytes)")


@dataclass
class SseEvent:
    """One event of a stream. The data of unknown events is not kept."""

    kind: str = "message"
    data: bytearray | None = None
    id: str | None = None
    retry: float | None = None
    """Seconds."""
    size: int = field(default=0, compare=False)
    """Bytes received for it, including those not kept."""
    is_overlong: bool = False

    def add(self, line: bytearray, most: int) -> None:
        """Add one line: `name: value`, or a comment."""
        self.size += len(line) + 1
        if self.size > _ENDLESS * most:
            raise EndlessLine
        colon = line.find(b":", 0, _LONGEST_FIELD)
        if colon == 0:
            return
        name = bytes(line[: colon if colon > 0 else _LONGEST_FIELD])
        begin = len(line) if colon < 0 else colon + 2 if line.startswith(b" ", colon + 1) else colon + 1
        if name == b"data":
            del line[:begin]
            self._add_data(line, most)
        elif name == b"event":
            self.kind = bytes(line[begin : begin + _LONGEST_FIELD]).decode("latin-1")
        elif name == b"id" and len(line) <= _LONGEST_ID and b"\0" not in line:
            self.id = bytes(line[begin:]).decode("latin-1")
        elif name == b"retry" and (digits := bytes(line[begin:])).isdigit() and len(digits) <= _LONGEST_RETRY:
            self.retry = int(digits) / 1000

    def _add_data(self, line: bytearray, most: int) -> None:
        if self.size > most:
            self.lose_data()
            self.data = None
        elif self.data is None:
            self.data = line
        else:
            self.data += b"\n"
            self.data += line

    def lose_data(self) -> None:
        """Mark the event as too long to be kept completely."""
        self.is_overlong = True


async def json_of(data: bytes | bytearray) -> Any:
    """The message in a body or an event; None if there is none."""
    try:
        return parsed(data) if len(data) < LARGE else await asyncio.to_thread(read_large, data, parsed)
    except (ValueError, RecursionError):
        return None


async def whole_body(response: httpx2.Response, most: int) -> bytes | bytearray:
    """The complete body. Accumulates in one bytearray, so completing it copies nothing."""
    if (arrived := _arrived(response, most)) is not None:
        return arrived
    body = bytearray()
    async for chunk in _decoded(response):
        body += chunk
        if len(body) > most:
            # The error keeps this frame, and so the body, alive.
            body.clear()
            raise too_long(most)
    return body


def _arrived(response: httpx2.Response, most: int) -> bytes | None:
    """A body that came in one piece with its headers, as nearly every short one does."""
    if not isinstance(response.stream, ArrivingBody) or "content-encoding" in response.headers:
        return None
    body = response.stream.arrived()
    if body is not None and len(body) > most:
        raise too_long(most)
    return body


def leave_rest(response: httpx2.Response) -> None:
    """Ignore the rest of a response that has not ended."""
    if isinstance(response.stream, ArrivingBody):
        response.stream.rest_is_not_needed()


async def _decoded(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The decompressed body, in pieces of bounded size."""
    turns = TimeSlice()
    packing = response.headers.get("content-encoding", "").strip().lower()
    if packing in ("", "identity"):
        async for chunk in response.aiter_raw():
            yield chunk
            if turns.is_over:
                await turns.next()
        return
    if packing not in ("gzip", "x-gzip"):
        raise BodyUnreadable("its response has an encoding that was not requested")
    unpacking = zlib.decompressobj(_GZIP)
    try:
        async for chunk in response.aiter_raw():
            waiting = chunk
            while waiting and not unpacking.eof:
                yield unpacking.decompress(waiting, _PIECE)
                waiting = unpacking.unconsumed_tail
                if turns.is_over:
                    await turns.next()
        yield unpacking.flush()
    except zlib.error:
        raise BodyUnreadable("its response is not valid gzip") from None


async def events(response: httpx2.Response, most: int) -> AsyncIterator[SseEvent]:
    """The events of a stream, at most `most` bytes each; a larger one comes without its data."""
    event: SseEvent | None = None
    try:
        async for line in lines(_decoded(response), most):
            if isinstance(line, OverlongLine):
                event = event or SseEvent()
                event.lose_data()
                continue
            # A large line is shortened in place, because a slice would copy it.
            rest = line if isinstance(line, bytearray) else bytearray(line)
            if rest.endswith(b"\r"):
                del rest[-1:]
            if rest:
                event = event or SseEvent()
                event.add(rest, most)
            elif event is not None:
                yield event
                event = None
    except EndlessLine:
        raise BodyUnreadable("an event of its stream has no end") from None
    if event is not None:
        yield event


CONNECT_TIMEOUT = 10.0
_IDLE = 3.0
"""Seconds an idle connection is kept: less than servers keep theirs (often 5), so that the server does not close one
just as it is used.
"""
_REFUSALS = (401, 403)
_MOST_ATTEMPTS = 3


class _Beginning(NamedTuple):
    """The part that many requests share: the request line, and the headers that the entry or httpx adds."""

    url: httpx2.URL
    own: frozenset[bytes]
    origin: Origin
    head: bytes


class ServerClient(httpx2.AsyncClient):
    """A client over kept connections, or over httpx's own connections if there is a proxy."""

    def __init__(self, headers: Mapping[str, str], kept: KeptConnections | None) -> None:
        # No read timeout: a stream may be silent for hours, and each call has its own deadline.
        timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=None)
        # Any number of connections: the number of calls is limited elsewhere, and streams stay open for hours.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE)
        verify = True if kept else _ssl_context()
        super().__init__(transport=kept, headers=headers, timeout=timeout, verify=verify, limits=limits)
        self._kept = kept
        self._beginnings: dict[str, _Beginning] = {}
        """The shared beginnings, by method."""

    async def exchange(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """Send a request; returns the response, not yet read, which the caller must close.

        A faster `send`, which spends half of its time on redirects, cookies and passwords in addresses, although hardly
        any server has these.
        """
        if self._kept is None or self.is_closed or url.userinfo or len(self.cookies.jar):
            request = self.build_request(method, url, content=content, headers=headers)
            return await self.send(request, stream=True)
        own = {name.lower().encode("ascii"): value.encode("ascii") for name, value in headers.items()}
        if content is not None:
            own[b"content-length"] = b"%d" % len(content)
        begun = self._beginning(method, url, own.keys())
        message = begun.head + written_headers(own.items()) + b"\r\n" + (content or b"")
        response = await self._kept.exchange(begun.origin, message, CONNECT_TIMEOUT)
        if "set-cookie" in response.headers:
            request = self.build_request(method, url)
            said = httpx2.Response(response.status_code, headers=response.headers.raw, request=request)
            self.cookies.extract_cookies(said)
        return response

    def _beginning(self, method: str, url: httpx2.URL, own: Collection[bytes]) -> _Beginning:
        """The beginning of all requests to this address whose own headers have these names."""
        known, names = self._beginnings.get(method), frozenset(own)
        if known is None or known.url is not url or known.own != names:
            others = [header for header in self.build_request(method, url).headers.raw if header[0].lower() not in own]
            head = written_line(method, url) + written_headers(others)
            known = self._beginnings[method] = _Beginning(url, names, origin_of(url), head)
        return known


@cache
def _ssl_context() -> Any:
    # Building one takes about 40 ms, so all HTTP servers share it.
    return httpx2.create_ssl_context()


class AuthorizedHttp:
    """A client that adds the authorization for its server, and retries refused requests with other headers."""

    def __init__(self, client: ServerClient, authorization: Authorization | None) -> None:
        self._client = client
        self._authorization = authorization

    async def send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        """Send a request; returns the response, not yet read, which the caller must close."""
        attempts = 0
        while True:
            attempts += 1
            own = await self._headers()
            response = await self._client.exchange(method, url, {**headers, **own}, content)
            if response.status_code not in _REFUSALS or self._authorization is None or attempts == _MOST_ATTEMPTS:
                return response
            try:
                is_worth_it = await self._other_headers(self._authorization, response, own)
            except BaseException:
                await response.aclose()
                raise
            if not is_worth_it:
                return response
            await response.aclose()

    @asynccontextmanager
    async def stream(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; the response is closed at the end of the context."""
        response = await self.send(method, url, headers, content)
        try:
            yield response
        finally:
            await response.aclose()

    async def _headers(self) -> Mapping[str, str]:
        if self._authorization is None:
            return {}
        try:
            return await self._authorization.headers()
        except OptimizerError as failure:
            raise ExchangeLost(str(failure), was_sent=False) from None

    async def _other_headers(
        self, authorization: Authorization, response: httpx2.Response, sent: Mapping[str, str]
    ) -> bool:
        # httpx joins several headers of this name into one list.
        challenges = response.headers.get("www-authenticate", "")
        try:
            return await authorization.refused(response.status_code, challenges, sent)
        except OptimizerError as failure:
            raise ExchangeLost(str(failure), was_sent=False) from None


def http_client(spec: ServerSpec, limits: Limits = DEFAULT_LIMITS) -> ServerClient:
    """A client for one server, through the proxy from the environment, if any."""
    # gzip is the only encoding whose decompressed size is limited here.
    headers = {"accept-encoding": "gzip", **spec.headers}
    is_proxied = is_proxied_address(httpx2.URL(spec.url))
    kept = None if is_proxied else KeptConnections(_ssl_context, _IDLE, limits.answer_header_bytes)
    return ServerClient(headers, kept)
