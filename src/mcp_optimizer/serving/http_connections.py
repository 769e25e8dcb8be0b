"""Limits on HTTP clients' connections: their number, the time and size of headers, and how long output may stay unread.

uvicorn limits none of these. A client that sends its headers a byte at a time or without end, or does not read its
responses, loses only its own connection. Called by `serve`; knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.http_gate import WHOLE_KEY

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_OFFER = (b"upgrade", b"connection", b"http2-settings")


def bounded_connections(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's HTTP protocol class with these limits added."""
    return type("BoundedConnection", (_BoundedConnection,), {"limits": _within_open_files(limits)})


def _within_open_files(limits: Limits) -> Limits:
    """Limits connections to half of the files that the system allows, because servers need some too."""
    if sys.platform == "win32":
        return limits
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    return limits.model_copy(update={"connections": max(1, min(limits.connections, soft // 2))})


class _BoundedConnection(HttpToolsProtocol):
    limits: Limits

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None
        self._is_in_headers = False
        self._since_progress = 0
        """Bytes received since the last complete unit: headers, a part of a body, a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(_BUSY)
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._since_progress += len(data)
        self._feed(data)
        if self._since_progress > self.limits.header_bytes and not self.transport.is_closing():
            self._end(_TOO_LONG)
        elif self._is_in_headers or not self._is_serving():
            # No timer from the first byte on: nearly all headers arrive at once, and each timer would be for nothing.
            self._expect_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers = True

    def on_headers_complete(self) -> None:
        self._headers_came()
        self._since_progress = 0
        if not self._offers_upgrade():
            super().on_headers_complete()
            # The parser gives us fields after a body, too, which must not change who sent the request.
            self.headers = []

    def on_body(self, body: bytes) -> None:
        self._since_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._since_progress = 0
        if not self._offers_upgrade():
            scope: Any = self.scope
            scope[WHOLE_KEY] = True
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading_due is None:
            self._reading_due = self.loop.call_later(self.limits.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None
        super().resume_writing()

    def _feed(self, data: bytes) -> None:
        """Like uvicorn's, except for an offer to change the protocol, which Java's HTTP client makes.

        uvicorn would take such a request without its body. We decline the offer and read the request without it.
        """
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._feed_until_offer(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _feed_until_offer(self, data: bytes) -> bytes:
        """Feed data up to an offer; returns what remains: the request without its offer, and later bytes."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._offers_upgrade():
                rest = self._head_without_offer() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                return rest
        return b""

    def _offers_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _head_without_offer(self) -> bytes:
        kept = [(name, value) for name, value in self.headers if name not in _OFFER]
        said = b", ".join(value for name, value in self.headers if name == b"connection").lower()
        closing = [(b"connection", b"close")] if b"close" in said else []
        lines = [name + b": " + value + b"\r\n" for name, value in [*kept, *closing]]
        return b"".join([self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n", *lines, b"\r\n"])

    def _is_serving(self) -> bool:
        """Whether a request is being answered. If not, any data, even a blank line, cancels uvicorn's own time limit
        for the next request.
        """
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self.limits.request_seconds, self.transport.close)

    def _headers_came(self) -> None:
        self._is_in_headers = False
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _end(self, answer: bytes) -> None:
        if not self._is_serving():
            self.transport.write(answer)
        self.transport.close()
