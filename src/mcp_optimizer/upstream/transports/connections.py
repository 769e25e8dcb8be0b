"""HTTP/1.1 over kept connections: a transport for httpx, made for the many small requests of a gateway.

For every request, httpx's own transport asks every kept connection whether it is still open, and it parses in Python.
Here a connection reports its own end, and a C parser reads responses; `benchmarks/results/http_pool.md` shows the
savings. httpx still handles addresses, headers, cookies and encodings. Used by `http_client`; knows no MCP.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import cast

import httptools
import httpx2

Origin = tuple[str, str, int]
"""Scheme, host and port that a connection leads to."""

_MOST_IDLE = 64
_MOST_UNREAD = 256 * 1024
"""Maximum bytes of a response that wait for their reader; beyond that, reading pauses."""
_SLICE = 16 * 1024
"""Bytes parsed at a time."""
_LONG_SLICE = 0.0005
"""Parsing time, in seconds, beyond which a slice is no normal response but consists of tiny chunks."""
_REST = 5
"""The pause after such a slice, as a multiple of the time it took."""
_NEXT_ADDRESS = 2.0
"""Seconds after which the next address of a host is tried, if it has several."""
_FINISHING = 0.25
"""Seconds for a server to end a response whose rest is not needed, so that its connection can be kept."""
_MOST_FINISHING = 32
_MOST_REST = 4 * 1024
"""Maximum bytes of such a rest."""


class KeptConnections(httpx2.AsyncBaseTransport):
    """Opens connections on demand, and keeps free ones for `idle` seconds."""

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], idle: float, header_bytes: int = 256_000) -> None:
        self._ssl_context = ssl_context
        self._header_bytes = header_bytes
        self._idle_seconds = idle
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._finishing: set[_Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        patience = request.extensions.get("timeout", {}).get("connect")
        return await self.exchange(origin_of(request.url), written_head(request) + await request.aread(), patience)

    async def exchange(self, origin: Origin, message: bytes, patience: float | None) -> httpx2.Response:
        """Send a complete request; the response is not yet read. `patience`: seconds for a new connection."""
        connection = self._kept(origin) or await self._connect(origin, patience)
        try:
            status, headers = await connection.exchange(message)
        except BaseException:
            connection.close()
            raise
        return httpx2.Response(status, headers=headers, stream=ArrivingBody(connection, self._free))

    def _kept(self, origin: Origin) -> _Connection | None:
        """The most recently used free connection; if it has been idle for too long, so have all others."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.is_closed and connection.loop.time() - connection.free_since < self._idle_seconds:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: Origin, patience: float | None) -> _Connection:
        try:
            async with asyncio.timeout(patience):
                try:
                    return await self._open_one(origin)
                except OSError:
                    # Try once more, because the server may just be starting.
                    return await self._open_one(origin)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"no connection within {patience:g} s") from None
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error

    async def _open_one(self, origin: Origin) -> _Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        context, name = (self._ssl_context(), host) if scheme == "https" else (None, None)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for number, (family, _, _, _, address) in enumerate(found, 1):
            is_last = number == len(found)
            try:
                async with asyncio.timeout(None if is_last else _NEXT_ADDRESS):
                    _, connection = await loop.create_connection(
                        lambda: _Connection(loop, origin, self._lost, self._header_bytes),
                        str(address[0]),
                        port,
                        family=family,
                        ssl=context,
                        server_hostname=name,
                    )
            except (OSError, TimeoutError):
                if is_last:
                    raise
                continue
            self._open.add(connection)
            return connection
        raise OSError(f"{host} has no address")

    def _free(self, connection: _Connection, needs_rest: bool) -> None:
        """Keep or close a connection whose response was read as far as needed, or whose reader left."""
        if connection.is_arriving and not needs_rest and len(self._finishing) < _MOST_FINISHING:
            self._finishing.add(connection)
            connection.finish(self._finished)
        else:
            self._keep(connection)

    def _finished(self, connection: _Connection) -> None:
        self._finishing.discard(connection)
        self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        idle = self._idle.setdefault(connection.origin, [])
        if not connection.can_be_kept or len(idle) >= _MOST_IDLE:
            connection.close()
            return
        connection.become_free()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._idle_seconds, self._sweep, connection.loop)

    def _lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._finishing.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that have not been used for long."""
        self._sweeping = None
        oldest = loop.time() - self._idle_seconds
        for origin, connections in list(self._idle.items()):
            for connection in connections:
                if connection.free_since <= oldest:
                    connection.close()
            self._idle[origin] = [connection for connection in connections if not connection.is_closed]
        if any(self._idle.values()):
            self._sweeping = loop.call_later(self._idle_seconds, self._sweep, loop)

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.close()
        # The event loop closes connections in its next iteration.
        await asyncio.sleep(0)


class ArrivingBody(httpx2.AsyncByteStream):
    """A response body as it arrives; closing it frees the connection for the next request."""

    def __init__(self, connection: _Connection, free: Callable[[_Connection, bool], None]) -> None:
        self._connection = connection
        self._free: Callable[[_Connection, bool], None] | None = free
        self._needs_rest = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.body()

    def arrived(self) -> bytes | None:
        """The complete body, if it came in one piece and was not read yet; it can be taken only once."""
        return self._connection.whole_body()

    def rest_is_not_needed(self) -> None:
        """Ignore the rest of the body. If it is short and comes at once, the connection is kept."""
        self._needs_rest = False

    async def aclose(self) -> None:
        if self._free is not None:
            self._free(self._connection, self._needs_rest)
            self._free = None


class _Connection(asyncio.Protocol):
    """One connection: a request, its response, then the next."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        lost: Callable[[_Connection], None],
        header_bytes: int,
    ) -> None:
        self._header_bytes = header_bytes
        self.loop = loop
        self.origin = origin
        self.free_since = loop.time()
        self.is_closed = False
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._is_answering = False
        self._unparsed = b""
        self._resting: asyncio.TimerHandle | None = None
        self._finished: Callable[[_Connection], None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._stays_open = False
        self._unread: list[bytes] = []
        self._unread_size = 0
        self._is_complete = False
        self._is_paused = False
        self._error: httpx2.TransportError | None = None

    def become_free(self) -> None:
        """Note that the connection now waits for its next request."""
        self.free_since = self.loop.time()

    @property
    def can_be_kept(self) -> bool:
        # Unparsed data would be taken for the next response.
        return self._is_complete and self._stays_open and not self.is_closed and not self._unparsed

    @property
    def is_arriving(self) -> bool:
        """Whether the rest of a response can still come."""
        return not self._is_complete and not self._is_paused and self._resting is None and not self.is_closed

    def finish(self, finished: Callable[[_Connection], None]) -> None:
        """Ignore the rest of the response. Calls `finished` at its end; closes the connection if it takes too long."""
        self._finished = finished
        self._unread.clear()
        self._unread_size = 0
        self._giving_up = self.loop.call_later(_FINISHING, self.close)

    async def exchange(self, message: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Send a request; returns the status and headers of its response. `body` reads the rest."""
        assert self._transport is not None
        self._begin()
        self._is_answering = True
        self._transport.write(message)
        while not self._status:
            await self._more()
        return self._status, self._headers

    def whole_body(self) -> bytes | None:
        """The complete body, if it came in one piece; can be taken only once."""
        return self._unread.pop() if self._is_complete and len(self._unread) == 1 and not self._is_paused else None

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            if self._unread:
                chunk = b"".join(self._unread) if len(self._unread) > 1 else self._unread[0]
                self._unread.clear()
                self._unread_size = 0
                if self._is_paused and self._transport is not None:
                    self._is_paused = False
                    if self._resting is None:
                        self._transport.resume_reading()
                yield chunk
            elif self._is_complete:
                return
            else:
                await self._more()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiting = self.loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _fail(self, error: httpx2.TransportError) -> None:
        if self._is_answering and not self._is_complete:
            self._error = self._error or error
        self._wake()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_answering or self._is_complete:
            # The server sent data without a request.
            self.close()
            return
        self._unparsed += data
        if self._resting is None:
            self._parse()

    def _parse(self) -> None:
        """Parse received data, one slice at a time. Slows down a server whose few bytes cause much work."""
        self._resting = None
        data, self._unparsed = self._unparsed, b""
        for at in range(0, len(data), _SLICE):
            began = time.monotonic()
            self._feed(data[at : at + _SLICE])
            took = time.monotonic() - began
            rest = data[at + _SLICE :] if took > _LONG_SLICE else b""
            if rest and not self.is_closed and self._transport is not None:
                self._unparsed = rest
                self._transport.pause_reading()
                self._resting = self.loop.call_later(_REST * took, self._parse)
                return
        if not self._is_paused and not self.is_closed and self._transport is not None:
            self._transport.resume_reading()
        if self._is_complete and (finished := self._no_longer_finishing()) is not None:
            finished(self)

    def _no_longer_finishing(self) -> Callable[[_Connection], None] | None:
        """Stop waiting for the end of an ignored response; returns the callback, if any."""
        finished, self._finished = self._finished, None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        return finished

    def _feed(self, data: bytes) -> None:
        if self.is_closed:
            return
        try:
            self._parser.feed_data(data)
            # The parser buffers incomplete headers, and trailers, without a limit of its own.
            self._head_size += 0 if self._status else len(data)
            if self._head_size > self._header_bytes:
                raise httptools.HttpParserError(f"its headers are longer than {self._header_bytes:,} bytes")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx2.RemoteProtocolError(f"it does not speak HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._feed(self._unparsed)
        self._no_longer_finishing()
        self.is_closed = True
        self._lost(self)
        if self._status and error is None and not self._has_length():
            # A response without a length ends with its connection.
            self._is_complete = True
        self._fail(httpx2.RemoteProtocolError(str(error) if error else "it closed the connection without a response"))

    def _has_length(self) -> bool:
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._headers)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._is_complete:
            # The server sent more than one response to one request.
            self.close()
        else:
            self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_complete:
            return
        if self._status:
            # A trailer after the body: counted, but not kept as a header.
            self._head_size += len(name) + len(value)
        else:
            self._headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        # A status below 200 is not the final response.
        if not self._is_complete and (status := self._parser.get_status_code()) >= 200:
            self._status = status
            self._wake()

    def on_body(self, body: bytes) -> None:
        if self._is_complete:
            return
        self._unread_size += len(body)
        if self._finished is not None:
            if self._unread_size > _MOST_REST:
                self.close()
            return
        self._unread.append(body)
        if self._unread_size > _MOST_UNREAD and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._status and not self._is_complete:
            self._is_complete = True
            self._stays_open = self._parser.should_keep_alive()
            self._wake()


def origin_of(url: httpx2.URL) -> Origin:
    return (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))


def written_line(method: str, url: httpx2.URL) -> bytes:
    """The first line of a request."""
    return b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.raw_path)


def written_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """One line per header; the caller must append an empty line."""
    lines = []
    for name, value in headers:
        if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
            raise httpx2.LocalProtocolError(f"the header {name!r} holds a line break")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def written_head(request: httpx2.Request) -> bytes:
    """A complete request except for its body."""
    return written_line(request.method, request.url) + written_headers(request.headers.raw) + b"\r\n"
