"""Answers modern clients over HTTP: each request introduces its client and is answered in its own HTTP task.

The response is one JSON body, or a stream from the first notification on. After a fraction of a second, the connection
is watched: a request ends when its client leaves. Called by the gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp.shared.message import ServerMessageMetadata
from mcp_types import HEADER_MISMATCH, ErrorData, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send

from mcp_optimizer.runtime.loop_timers import SlowTimer
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.dispatcher import RequestContext, outcome_of
from mcp_optimizer.serving.http_gate import accepts
from mcp_optimizer.serving.http_responses import PING, PING_EVENT, STREAM, event, left, refusal, send_json, send_pieces
from mcp_optimizer.serving.messages import Message, Outcome, response
from mcp_optimizer.serving.modern_clients import ModernClients
from mcp_optimizer.serving.relay.head import Fields

logger = logging.getLogger(__name__)

_MOMENT = 0.25
"""Seconds, at most twice as many, after which a request's connection is watched for its client leaving."""

_NO_REQUEST = "Body must be a single JSON-RPC request or notification object"


class ModernHttp:
    """Answers modern clients."""

    def __init__(self, moment: float = _MOMENT, ping: float = PING) -> None:
        self._clients: ModernClients | None = None
        self.moments = SlowTimer(moment)
        self.ping = ping
        self.tasks = BackgroundTasks(logger, "A client that left is not noticed")

    def serve(self, clients: ModernClients) -> None:
        """Start answering, because the server's lifespan has begun."""
        self._clients = clients

    @property
    def clients(self) -> ModernClients:
        assert self._clients is not None
        return self._clients

    async def post(
        self, request: Request, message: JSONRPCMessage, fields: Fields, receive: Receive, send: Send
    ) -> None:
        if not all(accepts(fields)):
            await Response(status_code=406)(request.scope, receive, send)
        elif isinstance(message, JSONRPCRequest):
            await _Exchange(self, request, message, fields).respond(receive, send)
        else:
            await _acknowledged(request, message)(request.scope, receive, send)

    async def other(self, request: Request, receive: Receive, send: Send) -> None:
        """Refuse any other method: this era uses only POST."""
        await Response(status_code=405, headers={"Allow": "POST"})(request.scope, receive, send)


def _acknowledged(request: Request, message: JSONRPCMessage) -> Response:
    """Drop a notification: a client cancels a request by leaving it. An answer to a question is refused."""
    if not isinstance(message, JSONRPCNotification):
        return refusal(400, _NO_REQUEST)
    revision = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, "")
    if (unsupported := unsupported_protocol_version_rejection(revision)) is not None:
        return refusal(_status(unsupported.code), unsupported.message, unsupported.code)
    return Response(status_code=202)


def _status(code: int) -> int:
    return ERROR_CODE_HTTP_STATUS.get(code, 200)


class _Exchange:
    """One request, and the way back to its client."""

    # Class defaults, because few requests change any of these.
    _has_left = False
    _watching: asyncio.Task[None] | None = None
    _is_stream = False
    _was_told = False
    _waiting: list[Message] | None = None
    _turn: asyncio.Lock | None = None
    _send: Send | None = None

    def __init__(self, http: ModernHttp, request: Request, message: JSONRPCRequest, fields: Fields) -> None:
        self._http = http
        self._request = request
        self._message = message
        self._fields = fields

    async def respond(self, receive: Receive, send: Send) -> None:
        self._send, answering = send, asyncio.current_task()
        assert answering is not None

        def take_longer() -> None:
            self._watching = self._http.tasks.spawn(self._watch(receive, answering))

        self._http.moments.begin(take_longer)
        try:
            outcome = await self._outcome()
            message = response(self._message.id, outcome)
            if self._waiting:
                await self.drained()
            if self._is_stream:
                await self._end(message)
            else:
                self._send = None
                await send_json(send, message, _status(outcome.code) if isinstance(outcome, ErrorData) else 200)
        except asyncio.CancelledError:
            if not self._has_left or answering.uncancel():
                # The task was cancelled for another reason.
                raise
        finally:
            self._send = None
            self._http.moments.end(take_longer)
            if self._watching is not None:
                self._watching.cancel()

    async def _outcome(self) -> Outcome:
        message, fields = self._message, self._fields
        if len(fields) != len(self._request.scope["headers"]):
            twice = find_duplicated_routing_header(self._request.headers.items())
            if twice is not None:
                return ErrorData(code=HEADER_MISMATCH, message=f"{twice} header appears more than once")
        context = RequestContext(
            message.id, message.params, self, None, ServerMessageMetadata(request_context=self._request)
        )
        return await outcome_of(self._http.clients.over_http(fields), context, message.method, message.params)

    def tell(self, message: Message) -> None:
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(message)

    async def drained(self) -> None:
        waiting, self._waiting = self._waiting or [], []
        await self._write([part for message in waiting for part in event(message)])
        # Sending may never wait, so this lets other tasks run.
        await asyncio.sleep(0)

    async def _write(self, parts: Iterable[bytes]) -> None:
        """Write events; the first one makes the response a stream."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            send = self._send
            if send is None:
                # The request has been answered, or its client is gone.
                return
            self._was_told = True
            if not self._is_stream:
                self._is_stream = True
                await send({"type": "http.response.start", "status": 200, "headers": list(STREAM)})
            await send_pieces(send, parts)

    async def _end(self, message: Message) -> None:
        assert self._turn is not None
        send, self._send = self._send, None
        async with self._turn:
            if send is not None:
                await send_pieces(send, event(message))
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, answering: asyncio.Task[None]) -> None:
        """End the request when its client leaves; until then, break long silences."""
        leaving = self._http.tasks.spawn(left(receive))
        try:
            while not leaving.done():
                self._was_told = False
                await asyncio.wait({leaving}, timeout=self._http.ping)
                if not leaving.done() and not self._was_told:
                    await self._write([PING_EVENT])
            self._has_left = True
            answering.cancel()
        finally:
            leaving.cancel()
