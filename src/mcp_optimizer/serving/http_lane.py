"""A short way for calls over HTTP: past the SDK's transport, to the same middlewares. Here those of legacy sessions.

The SDK makes each request a stream with tasks of its own. Nearly every call is answered at once and has nothing else to
tell, so here it gets its response as one JSON body. A call that asks or tells its client something, or that takes
longer than a moment, becomes the SDK's stream (`relay/sdk_streams.py`) and behaves as if it had always been one.
Called by the gate, which has read and admitted the message; whatever is not an ordinary call is left to the SDK.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Protocol

import pydantic_core
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, check_accept_headers
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS, is_version_at_least
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_optimizer.relay.head import Fields, is_repeated
from mcp_optimizer.relay.sdk_calls import Outcome, SessionCalls
from mcp_optimizer.relay.sdk_streams import LateStream, OpenTransport
from mcp_optimizer.runtime.moments import Moments
from mcp_optimizer.serving.first_events import release_first_event
from mcp_optimizer.serving.forwarded import FORWARDED_KEY
from mcp_optimizer.serving.forwarding import LAST_EVENT_ID
from mcp_optimizer.serving.modern_lane import ModernCall, ModernLane

AT_ONCE_KEY = "mcp_optimizer.at_once"
"""The key that an HTTP request carries while its response would be one JSON body, which nobody can ask for again."""

_MOMENT = 0.25
"""Seconds, at most twice as many, after which a call becomes a stream, which its client can resume."""

_RESUMABLE = "2025-11-25"
"""The first revision whose clients can resume a stream that has told them nothing yet."""

_USUAL_HEADER = 200
_READ = (b"mcp-", b"content-type", b"accept", LAST_EVENT_ID.encode())
"""The beginnings of the header fields that are read."""

_REVISION = MCP_PROTOCOL_VERSION_HEADER.encode()
_MODERN = frozenset(map(str.encode, MODERN_PROTOCOL_VERSIONS))
_HANDSHAKE = frozenset(map(str.encode, HANDSHAKE_PROTOCOL_VERSIONS))


class OpenSessions(Protocol):
    """The sessions that are open here."""

    def session_of(self, request: Request) -> OpenTransport | None:
        """The session that a request names, if it is its caller's and nothing is wrong with it."""

    def calls_of(self, session: str) -> SessionCalls | None:
        """What handles the requests of an open session."""

    def first_event(self, session: str, stream: str) -> str:
        """Keep the event that opens a stream, and return its id."""


class HttpLane:
    """Decides which messages are ordinary calls."""

    def __init__(self, sessions: OpenSessions, modern: ModernLane, moment: float = _MOMENT) -> None:
        self._sessions = sessions
        self._modern = modern
        self._moments = Moments(moment)

    def takes(self, request: Request, message: JSONRPCMessage, fields: Fields) -> LaneCall | ModernCall | None:
        """The message as a call of this lane; None: the SDK answers it, or says what is wrong with it."""
        if not isinstance(message, JSONRPCRequest) or message.method != "tools/call" or message.params is None:
            return None
        scope = request.scope
        if fields.get(b"content-type") != b"application/json" or not _accepts_both(fields.get(b"accept", b"")):
            return None
        if FORWARDED_KEY in scope or (len(fields) != len(scope["headers"]) and is_repeated(scope, _READ)):
            # Of a field that is there twice, the SDK knows which of the two is meant.
            return None
        if (revision := fields.get(_REVISION)) in _MODERN:
            return self._modern.takes(request, message, fields)
        if revision not in _HANDSHAKE or LAST_EVENT_ID.encode() in fields:
            return None
        transport = self._sessions.session_of(request)
        if transport is None or transport.mcp_session_id is None or not transport.is_free(str(message.id)):
            return None
        calls = self._sessions.calls_of(transport.mcp_session_id)
        if calls is None or not calls.is_open:
            return None
        return LaneCall(self._sessions, transport, calls, request, message, revision.decode(), self._moments)


class LaneCall:
    """One call, from its request to its response."""

    def __init__(
        self,
        sessions: OpenSessions,
        transport: OpenTransport,
        calls: SessionCalls,
        request: Request,
        message: JSONRPCRequest,
        revision: str,
        moments: Moments,
    ) -> None:
        self._sessions = sessions
        self._transport = transport
        self._calls = calls
        self._request = request
        self._message = message
        self._is_resumable = is_version_at_least(revision, _RESUMABLE)
        self._moments = moments
        self._outcome: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._stream: LateStream | None = None

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._transport.answer_by(self._respond, scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        metadata = ServerMessageMetadata(
            request_context=self._request, close_sse_stream=self._close if self._is_resumable else None
        )
        scope[AT_ONCE_KEY] = True
        self._moments.begin(self._take_longer)
        try:
            self._calls.begin(self._message, metadata, self._answer, self._become_stream)
            outcome = await self._outcome
            self._moments.end(self._take_longer)
            if self._stream is not None:
                await self._stream.respond(scope, receive, send)
            elif outcome is not None:
                await self._send(outcome, send)
        finally:
            self._moments.end(self._take_longer)
            if self._stream is not None:
                self._stream.leave()

    async def _send(self, outcome: Outcome, send: Send) -> None:
        body = _written(self._message, outcome)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (MCP_SESSION_ID_HEADER.encode(), (self._transport.mcp_session_id or "").encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _answer(self, outcome: Outcome) -> None:
        if AT_ONCE_KEY not in self._request.scope:
            await self._calls.write(self._message, outcome)
        elif not self._outcome.done():
            self._outcome.set_result(outcome)

    def _take_longer(self) -> None:
        release_first_event(self._request.scope)
        self._become_stream()

    def _become_stream(self) -> None:
        if self._request.scope.pop(AT_ONCE_KEY, None) is None or self._outcome.done():
            # It is one already, or whoever waited for the response is gone.
            return
        name, session = str(self._message.id), self._transport.mcp_session_id or ""
        first = self._sessions.first_event(session, name) if self._is_resumable else None
        self._stream = LateStream(self._transport, name, first)
        self._outcome.set_result(None)

    async def _close(self) -> None:
        """End the stream, so that the client asks for the rest."""
        self._become_stream()
        if self._stream is not None:
            await self._stream.close()


def _written(message: JSONRPCRequest, outcome: Outcome) -> bytes:
    if isinstance(outcome, ErrorData):
        error = JSONRPCError(jsonrpc="2.0", id=message.id, error=outcome)
        return error.model_dump_json(by_alias=True, exclude_unset=True).encode()
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id, "result": outcome}
    return pydantic_core.to_json(response)


def _accepts_both(accept: bytes) -> bool:
    """Whether a client takes JSON and streams, as it must. A very long header is left to the SDK."""
    return len(accept) <= _USUAL_HEADER and _read_accept(accept)


@lru_cache(maxsize=64)
def _read_accept(accept: bytes) -> bool:
    request = Request({"type": "http", "headers": [(b"accept", accept)]})
    return all(check_accept_headers(request))
