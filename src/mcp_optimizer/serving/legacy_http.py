"""Answers requests of legacy sessions over HTTP: with one JSON body, or on a stream that the client can resume.

Nearly every call is answered quickly and sends nothing else: it gets one JSON body. A call that sends its client a
question or notification, or runs longer than a fraction of a second, becomes a stream of the session, as all other
requests are: its events are kept, it can be closed, and a client that lost it asks for the rest. Messages outside of
requests go onto the stream that a client opens for them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, REQUEST_CANCELLED
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from mcp_types.version import is_version_at_least
from starlette.requests import Request
from starlette.types import Receive, Send

from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.runtime.loop_timers import SlowTimer
from mcp_optimizer.serving.dispatcher import ClientDispatcher, RequestContext
from mcp_optimizer.serving.http_responses import EventStream, Header, send_json
from mcp_optimizer.serving.messages import CALL, Message, Outcome, is_large, response

logger = logging.getLogger(__name__)


# Keeps events sent on legacy streams for clients that lose a stream and ask for the rest. Kept for a limited time and
# up to a few megabytes for all sessions together; the oldest are dropped first. Each session sees only its own
# events: streams are named after request ids, which every client counts from one.

_SECONDS = 120.0
TOO_LARGE = "The connection broke, and the result was too large to keep. Call again, or request less at a time."
_EVENT = 256
"""Bytes that an event takes in addition to its result."""
_LONGEST_ID = 20
"""Maximum digits of an event's id."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values without contents of their own, which nearly all values have."""


@dataclass(frozen=True)
class _Kept:
    session: object
    stream: str
    message: Message | None
    size: int
    at: float


class KeptEvents:
    """The events of all sessions."""

    def __init__(
        self,
        seconds: float = _SECONDS,
        size: int = DEFAULT_LIMITS.kept_events,
        clock: Callable[[], float] = time.monotonic,
        mark: str = "",
    ) -> None:
        """`mark`: the prefix of this gateway's event ids, for sessions in which other gateways number events too."""
        self._seconds = seconds
        self._most = size
        self._clock = clock
        self._mark = f"{mark}-" if mark else ""
        self._events: OrderedDict[int, _Kept] = OrderedDict()
        self._last = 0
        self.size = 0

    def of_session(self) -> SessionEvents:
        """A new, empty store for one session's events."""
        return SessionEvents(self)

    def is_elsewhere(self, event_id: str) -> bool:
        """Whether an event was numbered by another gateway, or by an earlier process of this one."""
        mark, _, number = event_id.rpartition("-")
        return len(mark) == len(self._mark) - 1 and mark.isalnum() and number.isdecimal() and f"{mark}-" != self._mark

    def keep(self, session: object, stream: str, message: Message | None) -> str:
        self._last += 1
        kept = _Kept(session, stream, message, _size(message) + len(stream), self._clock())
        if kept.size <= self._most:
            self._events[self._last] = kept
            self.size += kept.size
        while self._events:
            oldest = next(iter(self._events.values()))
            if self.size <= self._most and kept.at - oldest.at <= self._seconds:
                break
            self._events.popitem(last=False)
            self.size -= oldest.size
        return f"{self._mark}{self._last}"

    def after(self, session: object, event_id: str) -> tuple[str, list[tuple[str, Message]]] | None:
        """The stream of an event, and the messages after it on that stream; None if the event is no longer known."""
        digits = event_id.removeprefix(self._mark)
        number = int(digits) if digits.isdecimal() and len(digits) <= _LONGEST_ID else 0
        last = self._events.get(number)
        if last is None or last.session is not session:
            return None
        following = [
            (f"{self._mark}{key}", kept.message)
            for key, kept in self._events.items()
            if key > number and kept.session is session and kept.stream == last.stream and kept.message is not None
        ]
        return last.stream, following


class SessionEvents:
    """The events of one session."""

    def __init__(self, events: KeptEvents) -> None:
        self._events = events

    def open_stream(self, stream: str) -> str:
        """Keep the empty event that opens a stream, and return its id."""
        return self._events.keep(self, stream, None)

    def keep(self, stream: str, message: Message) -> str:
        """Keep a message sent on a stream, and return its id. A message written in pieces is replaced by an error."""
        if is_large(message):
            message = response(message["id"], ErrorData(code=INTERNAL_ERROR, message=TOO_LARGE))
        return self._events.keep(self, stream, message)

    def after(self, event_id: str) -> tuple[str, list[tuple[str, Message]]] | None:
        """The stream of an event, and the messages after it; None if the event is not known."""
        return self._events.after(self, event_id)


def _size(message: Message | None) -> int:
    """The approximate size of an event; serializing it would cost as much as sending it."""
    return _EVENT + (_bytes_of(message) if message is not None else 0)


def _bytes_of(value: Any) -> int:
    """The size of a value with everything in it. Not recursive, because a result may be nested too deeply for that."""
    size, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is dict:
            size += sys.getsizeof(item)
            waiting.extend(item)
            waiting.extend(item.values())
        elif kind in _PLAIN:
            size += sys.getsizeof(item)
        elif isinstance(item, RawJson):
            size += len(item.json)
        else:
            size += sys.getsizeof(item)
            waiting.extend([*item, *item.values()] if isinstance(item, Mapping) else item if _is_list(item) else ())
    return size


def _is_list(item: Any) -> bool:
    return isinstance(item, list | tuple)


_RESUMABLE = "2025-11-25"
"""The first revision whose clients can resume a stream on which nothing has been sent yet."""

_RETRY_MS = 1_000
"""Milliseconds after which a client that lost a stream should ask for the rest."""

_OUTSIDE = "outside"
"""The stream for messages outside of requests. No request has this name, because ids are marked."""

_CANCELLED = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")
"""In this era, a stream ends only with a response."""


def is_resumable(revision: str) -> bool:
    return is_version_at_least(revision, _RESUMABLE)


class Session:
    """One legacy session: its requests in progress, its streams, and the events sent on them."""

    def __init__(
        self,
        server: Server[Any],
        lifespan: Any,
        name: str,
        owner: str | None,
        events: SessionEvents,
        moments: SlowTimer,
    ) -> None:
        """`owner`: the id of the caller that began the session; None for an unverified caller. `moments`: the timer
        after which a request becomes a stream.
        """
        self.name = name
        self.owner = owner
        self.is_ended = False
        self.was_used = False
        """Whether the client has used the session after the handshake."""
        self._uses = 0
        self._idle_since = asyncio.get_running_loop().time()
        self.moments = moments
        self._events = events
        self._streams: dict[str, EventStream] = {}
        self._dispatcher = ClientDispatcher(self)
        self._connection = Connection.for_loop(self._dispatcher, session_id=name)
        self._runner = ServerRunner(server, self._connection, lifespan)

    @property
    def header(self) -> Header:
        return (MCP_SESSION_ID_HEADER.encode(), self.name.encode())

    @property
    def has_shaken_hands(self) -> bool:
        return self._connection.client_params is not None

    def use(self) -> None:
        """Record that the client uses the session, and so has received the response to its handshake."""
        self.was_used = True

    @property
    def is_idle(self) -> bool:
        """Whether the session has no request in progress and no open stream."""
        return self._uses == 0

    def idle_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._idle_since if self.is_idle else 0.0

    def __enter__(self) -> None:
        self._uses += 1

    def __exit__(self, *_error: object) -> None:
        self._uses -= 1
        self._idle_since = asyncio.get_running_loop().time()

    # The way back to the client for messages outside of requests.

    def tell(self, message: Message) -> None:
        self.put(_OUTSIDE, message)

    async def drained(self) -> None:
        await self.room(_OUTSIDE)

    # Streams.

    def put(self, name: str, message: Message) -> None:
        """Send a message on a stream: keep it, and write it if the stream is open."""
        event_id = self._events.keep(name, message)
        if (stream := self._streams.get(name)) is not None:
            stream.put(message, event_id)

    async def room(self, name: str) -> None:
        if (stream := self._streams.get(name)) is not None:
            await stream.drained()

    def attach(self, name: str, stream: EventStream) -> None:
        """Write what is sent on this stream to `stream` from now on."""
        if (before := self._streams.get(name)) is not None:
            before.close()
        self._streams[name] = stream

    def detach(self, name: str, stream: EventStream) -> None:
        if self._streams.get(name) is stream:
            del self._streams[name]

    def close_stream(self, name: str) -> None:
        """End a response, so that the client asks for the rest."""
        if (stream := self._streams.pop(name, None)) is not None:
            stream.close()

    def first_event(self, name: str) -> bytes:
        """The event that opens a stream and tells a client from which event and after what delay to resume."""
        return f"id: {self._events.open_stream(name)}\r\ndata: \r\nretry: {_RETRY_MS}\r\n\r\n".encode()

    @property
    def is_listened_to(self) -> bool:
        """Whether the stream for messages outside of requests is open."""
        return _OUTSIDE in self._streams

    async def listen(self, receive: Receive, send: Send) -> None:
        """Open the stream for messages outside of requests."""
        await self._write(_OUTSIDE, EventStream(), receive, send)

    async def resume(self, event_id: str, revision: str, receive: Receive, send: Send) -> None:
        """Write what followed an event on its stream, and then whatever else is sent on it."""
        found = self._events.after(event_id)
        stream = EventStream()
        if found is None:
            stream.close()
            await stream.respond(send, receive, [self.header])
            return
        name, following = found
        for number, message in following:
            stream.put(message, number)
        if stream.is_closed or name in self._streams:
            stream.close()
            await stream.respond(send, receive, [self.header])
            return
        first = self.first_event(name) if is_resumable(revision) and not following else b""
        await self._write(name, stream, receive, send, first)

    async def _write(self, name: str, stream: EventStream, receive: Receive, send: Send, first: bytes = b"") -> None:
        self.attach(name, stream)
        try:
            await stream.respond(send, receive, [self.header], first)
        finally:
            self.detach(name, stream)

    # Messages.

    async def answer(
        self, request: Request, message: JSONRPCRequest, revision: str, receive: Receive, send: Send
    ) -> None:
        """Respond to a request."""
        await _Exchange(self, request, message, revision).respond(receive, send)

    def take(self, message: JSONRPCMessage, request: Request) -> None:
        """Handle a notification, or the answer to a question."""
        self._dispatcher.take(message, self._runner.on_notify, ServerMessageMetadata(request_context=request))

    def begin(self, exchange: _Exchange, message: JSONRPCRequest, metadata: ServerMessageMetadata) -> None:
        context = RequestContext(message.id, message.params, exchange, self._dispatcher, metadata)
        self._dispatcher.begin(message, context, self._runner.on_request, exchange.answer)

    async def shake_hands_again(self, params: Mapping[str, Any], request: Request) -> None:
        """Repeat the client's handshake without the client; the responses are discarded."""
        done = asyncio.Event()
        hello = JSONRPCRequest(jsonrpc="2.0", id=0, method="initialize", params=dict(params))
        context = RequestContext(
            0, hello.params, self, self._dispatcher, ServerMessageMetadata(request_context=request)
        )
        self._dispatcher.begin(hello, context, self._runner.on_request, lambda _outcome: done.set())
        await done.wait()
        self.take(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"), request)

    async def end(self) -> None:
        """End the session: its requests are cancelled and answered with an error, and its streams end."""
        if self.is_ended:
            return
        self.is_ended = True
        await self._dispatcher.close()
        for name in list(self._streams):
            self.close_stream(name)
        await aclose_shielded(self._connection)


class _Exchange:
    """One request, and the way back to its client."""

    def __init__(self, session: Session, request: Request, message: JSONRPCRequest, revision: str) -> None:
        self._session = session
        self._request = request
        self._message = message
        self._name = f"request {message.id}"
        self._is_resumable = is_resumable(revision)
        self._outcome: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._stream: EventStream | None = None
        self._first = b""

    async def respond(self, receive: Receive, send: Send) -> None:
        session, become_stream = self._session, self._become_resumable
        close = self._close if self._is_resumable else None
        metadata = ServerMessageMetadata(request_context=self._request, close_sse_stream=close)
        session.moments.begin(become_stream)
        try:
            session.begin(self, self._message, metadata)
            outcome = await self._outcome
            if outcome is not None:
                await send_json(send, response(self._message.id, outcome), headers=[session.header])
            elif self._stream is not None:
                await self._stream.respond(send, receive, [session.header], self._first)
        finally:
            session.moments.end(become_stream)
            if self._stream is not None:
                # Later events are only kept, unless the client has meanwhile asked for them on another stream.
                self._stream.close()
                session.detach(self._name, self._stream)

    def tell(self, message: Message) -> None:
        self._become_stream()
        self._session.put(self._name, message)

    async def drained(self) -> None:
        await self._session.room(self._name)

    def answer(self, outcome: Outcome | None) -> None:
        known = outcome if outcome is not None else _CANCELLED
        if not self._outcome.done() and self._message.method == CALL:
            self._outcome.set_result(known)
        else:
            self._become_stream()
            self._session.put(self._name, response(self._message.id, known))

    def _become_resumable(self) -> None:
        """Become a stream that starts with an empty event, which tells the client where to resume."""
        if self._is_resumable and not self._outcome.done():
            self._first = self._session.first_event(self._name)
        self._become_stream()

    def _become_stream(self) -> None:
        if self._outcome.done():
            # It is a stream already, or its client is gone.
            return
        self._stream = EventStream()
        self._session.attach(self._name, self._stream)
        self._outcome.set_result(None)

    async def _close(self) -> None:
        """End the stream, so that the client asks for the rest, but only after sending it the event to resume from."""
        self._become_resumable()
        self._session.close_stream(self._name)
