"""Responses over HTTP: one JSON body, or a stream of events, in both eras. Knows nothing of the recipient.

A large body is written in pieces and never exists as a whole. A silent stream is sent a ping now and then, so that no
proxy takes the connection for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from mcp_types import INVALID_REQUEST, ErrorData
from starlette.responses import Response
from starlette.types import Receive, Send

from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.messages import Message, encoded, is_large, is_response, pieces, response

logger = logging.getLogger(__name__)

Header = tuple[bytes, bytes]

PING = 15.0
"""Seconds of silence after which a stream is sent a ping."""
PING_EVENT = b": ping\r\n\r\n"

STREAM: Sequence[Header] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
_JSON: Header = (b"content-type", b"application/json")

_FEW = 16
"""Maximum events waiting to be read while notifications do not wait."""

RETRY_AFTER = 1
"""Seconds after which a client that found no room should try again."""


async def send_json(send: Send, message: Message, status: int = 200, headers: Iterable[Header] = ()) -> None:
    """Send a response with one message."""
    if is_large(message):
        await send({"type": "http.response.start", "status": status, "headers": [_JSON, *headers]})
        await send_pieces(send, pieces(message))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    body = encoded(message)
    known = [_JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": known})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_pieces(send: Send, parts: Iterable[bytes]) -> None:
    for piece in parts:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        # For a client that reads fast, `send` never waits, and no other task would run.
        await asyncio.sleep(0)


def event(message: Message, event_id: str = "") -> Iterator[bytes]:
    """A message as an event, in pieces if it is large."""
    name = f"id: {event_id}\r\n".encode() if event_id else b""
    start = name + b"event: message\r\ndata: "
    if is_large(message):
        yield start
        yield from pieces(message)
        yield b"\r\n\r\n"
    else:
        yield start + encoded(message) + b"\r\n\r\n"


def refusal(status: int, text: str, code: int = INVALID_REQUEST, headers: dict[str, str] | None = None) -> Response:
    """The response to a request that is refused without examining its message further."""
    more = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
    body = encoded(response(None, ErrorData(code=code, message=text)))
    return Response(body, status, {**more, **(headers or {})}, media_type="application/json")


async def left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """A response that is written while events arrive, until the last event or until its client leaves."""

    def __init__(self, ping: float = PING) -> None:
        self._ping = ping
        self._waiting: deque[tuple[Message, str]] = deque()
        self._changed = asyncio.Event()
        self._wrote = asyncio.Event()
        self._tasks = BackgroundTasks(logger, "A client that left is not noticed")
        self.is_closed = False
        """Whether further events are dropped."""

    def put(self, message: Message, event_id: str = "") -> None:
        """Queue an event; a response is the last one."""
        if self.is_closed:
            return
        self._waiting.append((message, event_id))
        self.is_closed = is_response(message)
        self._changed.set()

    def close(self) -> None:
        """Take no more events; those already queued are still written."""
        self.is_closed = True
        self._changed.set()
        self._wrote.set()

    async def drained(self) -> None:
        """Wait until few events are queued, or the stream is closed."""
        while len(self._waiting) >= _FEW and not self.is_closed:
            self._wrote.clear()
            await self._wrote.wait()

    async def respond(self, send: Send, receive: Receive, headers: Iterable[Header], first: bytes = b"") -> None:
        """Write all events; `first` is an event that is not a message."""
        leaving = self._tasks.spawn(left(receive))
        leaving.add_done_callback(lambda _task: self.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while not leaving.done():
                while self._waiting and not leaving.done():
                    await send_pieces(send, event(*self._waiting.popleft()))
                    self._wrote.set()
                if self.is_closed:
                    break
                await self._wait(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()
            self._waiting.clear()
            self.close()

    async def _wait(self, send: Send) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), self._ping)
        except TimeoutError:
            await send({"type": "http.response.body", "body": PING_EVENT, "more_body": True})
