"""Counts MCP requests over HTTP, and lets those in progress finish when the gateway stops.

A stopping gateway first says so at `/ready` and still takes requests, because load balancers check it only now and
then; every response asks its client to come back on another connection. Then new requests get 503 with Retry-After,
which load balancers send elsewhere, and those in progress finish. Knows nothing of tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_optimizer.domain.protocol import INTERNAL_ERROR

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

IN_FLIGHT_KEY = "mcp_optimizer.in_flight"
"""The scope key of a request's entry among those in progress."""

_RETRY_AFTER = 5
"""Seconds after which a client of a stopping gateway should try again."""
_USUAL_ANSWER = 1_000_000
"""Maximum bytes of a client's answer to a question; during shutdown, no more are read."""
_WATCHED = 30.0
"""Seconds for which a request to `/ready` means that the client will ask again."""


class LastRequests:
    """The MCP requests in progress over HTTP, and whether more are taken."""

    def __init__(self) -> None:
        self.is_leaving = False
        """Whether clients are asked to come back on another connection, which leads to another gateway."""
        self.takes_more = True
        """Whether new requests are accepted."""
        self._in_flight: set[object] = set()
        self._emptied = asyncio.Event()
        self._watched_at: float | None = None
        self._count_sessions: Callable[[], int] = int

    def count_sessions_with(self, count: Callable[[], int]) -> None:
        """Set the function that counts the open sessions."""
        self._count_sessions = count

    @property
    def sessions(self) -> int:
        return self._count_sessions()

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def is_watched(self) -> bool:
        """Whether a client, such as a load balancer, asks `/ready` regularly."""
        return self._watched_at is not None and time.monotonic() - self._watched_at < _WATCHED

    def announce_stop(self) -> None:
        """Announce that the gateway stops; requests are still accepted, until `finished`."""
        self.is_leaving = True

    def watched(self) -> None:
        """Record a request to `/ready`."""
        self._watched_at = time.monotonic()

    def begin(self) -> object:
        entry = object()
        self._in_flight.add(entry)
        return entry

    def end(self, entry: object) -> None:
        """Stop counting a request; also called for an endless stream as soon as it is recognized as one."""
        self._in_flight.discard(entry)
        if not self._in_flight and not self.takes_more:
            # Before shutdown, nothing waits for this event.
            self._emptied.set()

    async def finished(self, seconds: float) -> None:
        """Take no more requests, and wait until those in progress are answered or the time is up."""
        self.takes_more = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._in_flight:
                    self._emptied.clear()
                    await self._emptied.wait()


def release_stream(scope: Scope) -> None:
    """Stop counting this request, a stream that lasts until its client leaves: shutdown does not wait for it."""
    if (entry := scope.get(IN_FLIGHT_KEY)) is not None:
        requests, key = entry
        requests.end(key)


class LastCalls:
    """Counts MCP requests; during shutdown, new ones get 503 with Retry-After.

    Answers to questions and notifications still pass, because calls in progress may need them to finish.
    """

    def __init__(self, app: ASGIApp, requests: LastRequests) -> None:
        self.app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self._requests.is_leaving:
            send = _on_the_last_connection(send)
        if scope["path"] != "/mcp" or scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif self._requests.takes_more:
            entry = self._requests.begin()
            scope[IN_FLIGHT_KEY] = (self._requests, entry)
            try:
                await self.app(scope, receive, send)
            finally:
                self._requests.end(entry)
        else:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = await _beginning(receive)
        body = b"".join(message.get("body", b"") for message in read)
        if not read[-1].get("more_body") and not _is_request(body):
            await self.app(scope, _again(read, receive), send)
            return
        # Loaded only here: commands without a gateway come by, and have no HTTP.
        from starlette.responses import JSONResponse

        stopping = {"code": INTERNAL_ERROR, "message": "The gateway is stopping. Call again when it is back."}
        answer = {"jsonrpc": "2.0", "id": None, "error": stopping}
        refusal = JSONResponse(answer, status_code=503, headers={"retry-after": str(_RETRY_AFTER)})
        await refusal(scope, receive, send)


def _on_the_last_connection(send: Send) -> Send:
    """Close the connection after the response: a balancer that distributes connections would keep using it."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
            message = {**message, "headers": [*kept, (b"connection", b"close")]}
        await send(message)

    return sent


async def _beginning(receive: Receive) -> list[Message]:
    """The messages of a request's body, if it has a usual size."""
    read, size = [await receive()], 0
    while read[-1].get("more_body") and (size := size + len(read[-1].get("body", b""))) < _USUAL_ANSWER:
        read.append(await receive())
    return read


def _is_request(body: bytes) -> bool:
    """Whether the sender waits for a response. Unreadable messages get one too."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return True
    return not isinstance(message, dict) or ("method" in message and "id" in message)


def _again(read: list[Message], receive: Receive) -> Receive:
    waiting = iter(read)

    async def next_message() -> Message:
        return next(waiting, None) or await receive()

    return next_message
