"""A short way for the calls of modern clients over HTTP: in the task of the request, to the same middlewares.

The SDK handles each request in a group of tasks, because some send notifications and some clients leave. Nearly every
call is answered at once and has nothing else to tell. Here it gets more only when it needs it: with the first
notification a stream, and after a moment somebody who watches whether the client is still there. Called by `http_lane`;
whatever the SDK would refuse is left to the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pydantic_core
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    ProgressToken,
    RequestId,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_optimizer.relay.head import Fields
from mcp_optimizer.runtime.moments import Moments
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.lane import PROGRESS, progress_of
from mcp_optimizer.serving.modern_routes import ModernRoutes, SchemaOf

logger = logging.getLogger(__name__)

_MOMENT = 0.25
"""Seconds, at most twice as many, after which it is watched whether the client of a call is still there."""

_PING = 15.0
"""Seconds of silence after which a client is sent something, so that nobody between takes the connection for dead."""

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]

Handle = Callable[[Any, Connection, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Runs the middlewares of the MCP server for the parameters of a call, with its context, on a connection."""


class ModernLane:
    """Decides which requests of modern clients are ordinary calls."""

    def __init__(
        self, handle: Handle, schema_of: SchemaOf | None, moment: float = _MOMENT, ping: float = _PING
    ) -> None:
        """`schema_of` is the schema of a tool by which the SDK checks headers with arguments."""
        self.handle = handle
        self.moments = Moments(moment)
        self.ping = ping
        self._routes = ModernRoutes(schema_of)
        self.tasks = BackgroundTasks(logger, "A client that left is not noticed")

    def takes(self, request: Request, message: JSONRPCRequest, fields: Fields) -> ModernCall | None:
        connection = self._routes.connection(message.params or {}, fields)
        return ModernCall(self, request, message, connection) if connection is not None else None


class _Context:
    """As the SDK makes it for a request that is answered once, with what is seldom asked for made when it is."""

    __slots__ = ("_message", "_request", "_tell", "message_metadata")
    can_send_request = False

    def __init__(self, request: Request, message: JSONRPCRequest, tell: Callable[[bytes], Awaitable[None]]) -> None:
        """`tell` sends an event on the stream of the request."""
        self._request = request
        self._message = message
        self._tell = tell
        self.message_metadata = ServerMessageMetadata(request_context=request)

    @property
    def request_id(self) -> RequestId:
        return self._message.id

    @property
    def transport(self) -> TransportContext:
        return TransportContext(kind="streamable-http", can_send_request=False, headers=self._request.headers)

    @property
    def progress_token(self) -> ProgressToken | None:
        return progress_token_from_params(self._message.params)

    @property
    def cancel_requested(self) -> anyio.Event:
        # Nobody of ours waits for it, and no message cancels such a call.
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        del params, opts
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        del opts
        body = dict(params) if params is not None else None
        notice = JSONRPCNotification(jsonrpc="2.0", method=method, params=body)
        await self._tell(_event(notice.model_dump_json(by_alias=True, exclude_none=True).encode()))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if (token := self.progress_token) is not None:
            await self.notify(PROGRESS, progress_of(token, progress, total, message))


class ModernCall:
    """One call, from its request to its response."""

    # Few calls change any of these.
    _has_left = False
    _watching: asyncio.Task[None] | None = None
    _is_stream = False
    _was_told = False
    _turn: asyncio.Lock | None = None
    _send: Send | None = None

    def __init__(self, lane: ModernLane, request: Request, message: JSONRPCRequest, connection: Connection) -> None:
        self._lane = lane
        self._request = request
        self._message = message
        self._connection = connection

    async def respond(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self._send, answering = send, asyncio.current_task()
        assert answering is not None

        def take_longer() -> None:
            self._watching = self._lane.tasks.spawn(self._watch(receive, answering))

        self._lane.moments.begin(take_longer)
        try:
            status, body = await self._answer()
            if self._is_stream:
                await self._end_stream(body)
            else:
                self._send, headers = None, [(b"content-length", b"%d" % len(body)), _JSON]
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body, "more_body": False})
        except asyncio.CancelledError:
            if not self._has_left or answering.uncancel():
                # Somebody else ends it.
                raise
        finally:
            self._send = None
            self._lane.moments.end(take_longer)
            if self._watching is not None:
                self._watching.cancel()

    async def _answer(self) -> tuple[int, bytes]:
        message = self._message
        context = _Context(self._request, message, self._tell)
        try:
            result = await self._lane.handle(context, self._connection, message.params or {})
        except (MCPError, ValidationError) as failure:
            error = modern_error_data(failure)
        except Exception:
            logger.exception("Cannot answer a request")
            error = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
        else:
            return 200, pydantic_core.to_json({"jsonrpc": "2.0", "id": message.id, "result": result})
        return ERROR_CODE_HTTP_STATUS.get(error.code, 200), _error(message, error)

    async def _end_stream(self, body: bytes) -> None:
        assert self._turn is not None
        send, self._send = self._send, None
        async with self._turn:
            if send is not None:
                await send({"type": "http.response.body", "body": _event(body), "more_body": False})

    async def _tell(self, event: bytes) -> None:
        """Send an event; the first one makes the response a stream."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            send = self._send
            if send is None:
                # The call has been answered, or its client is gone.
                return
            self._was_told = True
            if not self._is_stream:
                self._is_stream = True
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            await send({"type": "http.response.body", "body": event, "more_body": True})
        # Sending need not wait for anything, and others want their turn.
        await asyncio.sleep(0)

    async def _watch(self, receive: Receive, answering: asyncio.Task[Any]) -> None:
        """End the call when its client leaves; until then, break long silences."""
        leaving = self._lane.tasks.spawn(_left(receive))
        try:
            while not leaving.done():
                self._was_told = False
                await asyncio.wait({leaving}, timeout=self._lane.ping)
                if not leaving.done() and not self._was_told:
                    await self._tell(b": ping\r\n\r\n")
            self._has_left = True
            answering.cancel()
        finally:
            leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(message: JSONRPCRequest, error: ErrorData) -> bytes:
    written = JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    return written.model_dump_json(by_alias=True, exclude_none=True).encode()


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
