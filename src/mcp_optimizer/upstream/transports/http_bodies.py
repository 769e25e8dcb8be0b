"""Reads a server's HTTP responses within limits: complete bodies, and the events of a stream.

Decompresses the bodies itself, because httpx would unpack a kilobyte into a gigabyte before it could be counted. Used
by the HTTP transports.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.largejson.large_messages import LARGE, read_large
from mcp_optimizer.upstream.request_errors import ExchangeLost
from mcp_optimizer.upstream.transports.bounded_lines import EndlessLine, OverlongLine, TimeSlice, lines
from mcp_optimizer.upstream.transports.connections import ArrivingBody

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
