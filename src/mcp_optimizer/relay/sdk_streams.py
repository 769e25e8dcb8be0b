"""The stream of a legacy request over HTTP, opened later than the SDK opens it: when there is something to send on it.

From then on it is one of the SDK's streams: events are kept, it can be closed, and a client that lost it can ask for
the rest. What the SDK does not document is checked by `tests/contract/test_sdk_internals.py`.
"""

from __future__ import annotations

from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
)
from sse_starlette import EventSourceResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Event = dict[str, Any]

_APP_KEY = "mcp_optimizer.lane"


class OpenTransport(StreamableHTTPServerTransport):
    """The SDK's session over HTTP; requests in it can also be answered by somebody else."""

    def is_free(self, stream: str) -> bool:
        """Whether the session goes on, and has no stream of this name."""
        has_ended = self.is_terminated or (self.idle_scope is not None and self.idle_scope.cancel_called)
        return not has_ended and stream not in self._request_streams

    async def answer_by(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """A request in progress, which stops the session's idle time, that `app` answers."""
        scope[_APP_KEY] = app
        await self.handle_request(scope, receive, send)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp | None = scope.pop(_APP_KEY, None)
        if app is None or self.is_terminated:
            response = _WholeResponse(send)
            await super()._handle_request(scope, receive, response.send)
            await response.end()
        else:
            await app(scope, receive, send)

    def open_late(self, stream: str, writer: MemoryObjectSendStream[Event]) -> MemoryObjectReceiveStream[EventMessage]:
        """From now on, what is sent for this request waits here to be written."""
        self._sse_stream_writers[stream] = writer
        waiting = self._request_streams[stream] = anyio.create_memory_object_stream[EventMessage](
            REQUEST_STREAM_BUFFER_SIZE
        )
        return waiting[1]

    async def write_late(
        self, stream: str, writer: MemoryObjectSendStream[Event], waiting: MemoryObjectReceiveStream[EventMessage]
    ) -> None:
        await self._run_sse_writer(stream, writer, waiting, None)

    def leave_late(self, stream: str, writer: MemoryObjectSendStream[Event]) -> None:
        """Nobody reads any more, unless the client has meanwhile asked for the rest on another stream."""
        if self._sse_stream_writers.get(stream) is writer:
            self.close_sse_stream(stream)
        writer.close()

    def first_event(self, event_id: str) -> Event:
        """The event that opens a stream, which tells a client from where and when to ask for the rest."""
        return {"id": event_id, "data": "", "retry": self._retry_interval}


class _WholeResponse:
    """A response that has an end. The SDK leaves it out when a session ends while one of its requests begins, and its
    client would take that for a broken connection.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = self._has_ended = False

    async def send(self, message: Message) -> None:
        self._has_begun = True
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        if self._has_begun and not self._has_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class LateStream:
    """The response of one request, as a stream."""

    def __init__(self, transport: OpenTransport, name: str, first_event: str | None) -> None:
        """From now on, what is sent goes onto the stream. `first_event`: the id from which a client can resume, if it
        knows how to.
        """
        self._transport = transport
        self._name = name
        self._first = transport.first_event(first_event) if first_event is not None else None
        self._began = anyio.Event()
        self._writer, self._reader = anyio.create_memory_object_stream[Event](0)
        self._waiting = transport.open_late(name, self._writer)

    async def close(self) -> None:
        """End the response, so that the client asks for the rest; not before it knows from where."""
        await self._began.wait()
        self._transport.close_sse_stream(self._name)

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response to its end, or until its client is gone."""
        headers = {
            "Cache-Control": "no-cache, no-transform",
            "Connection": "keep-alive",
            MCP_SESSION_ID_HEADER: self._transport.mcp_session_id or "",
        }
        response = EventSourceResponse(content=self._reader, data_sender_callable=self._write, headers=headers)
        await response(scope, receive, send)

    async def _write(self) -> None:
        try:
            if self._first is not None:
                await self._writer.send(self._first)
        except anyio.ClosedResourceError:
            # The session ended meanwhile, and what follows finds that too.
            pass
        finally:
            self._began.set()
        await self._transport.write_late(self._name, self._writer, self._waiting)

    def leave(self) -> None:
        """Nobody reads any more: what is still sent is only kept."""
        self._began.set()
        self._reader.close()
        self._transport.leave_late(self._name, self._writer)
