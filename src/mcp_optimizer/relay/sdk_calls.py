"""Calls that are handled without the SDK's dispatcher and its streams.

For a transport of ours that has read a `tools/call` itself: the same middlewares run with the same context, a
cancellation finds it, and it ends with its session, if it has one. The SDK makes a task group's task, a cancel scope,
events and several stream hops for each request, which takes longer than everything we do in a call. What it does not
document is used here and in `sdk_internals.py` only, and checked by `tests/contract/test_sdk_internals.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.dispatcher import CallOptions, DispatchContext, coerce_request_id
from mcp.shared.jsonrpc_dispatcher import (
    JSONRPCDispatcher,
    _InFlight,
    _JSONRPCDispatchContext,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCRequest, RequestParams, RequestParamsMeta
from opentelemetry import trace
from pydantic import ValidationError

logger = logging.getLogger(__name__)

CALL = "tools/call"
_TOKENS = ("progressToken", "progress_token")

Context = ServerRequestContext[Any, Any]

Outcome = dict[str, Any] | ErrorData
"""The result of a request, or its error."""

Answer = Callable[[Outcome], Awaitable[None]]

_DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
_CANCELLED = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")
_CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
_LAST_WRITE = 1.0
"""Seconds for the error of a request whose session ends."""


class CallChain:
    """The middlewares of a server, for calls."""

    def __init__(self, middlewares: Sequence[ServerMiddleware[Any]], lifespan: Any) -> None:
        self._traced = _composed(middlewares)
        # Without anybody who takes spans, making one for each call has no effect.
        self._untraced = _composed([one for one in middlewares if not isinstance(one, OpenTelemetryMiddleware)])
        self._lifespan = lifespan

    async def answer(
        self, channel: DispatchContext[TransportContext], connection: Connection, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result of a call; raises what the SDK turns into errors."""
        meta, received = meta_of(params), channel.message_metadata
        received = received if isinstance(received, ServerMessageMetadata) else None
        context: Context = ServerRequestContext(
            session=ServerSession(channel, connection, request_meta=meta),
            lifespan_context=self._lifespan,
            method=CALL,
            params=params,
            request_id=channel.request_id,
            meta=meta,
            protocol_version=connection.protocol_version,
            request=received.request_context if received is not None else None,
            close_sse_stream=received.close_sse_stream if received is not None else None,
        )
        result = await (self._traced if is_traced() else self._untraced)(context)
        if not isinstance(result, dict):
            raise TypeError(f"a call was answered with {type(result).__name__}")
        return result


def is_traced() -> bool:
    """Whether somebody takes spans, which may begin at any time. The documented `get_tracer_provider` looks into the
    environment each time, which takes twenty times as long.
    """
    return getattr(trace, "_TRACER_PROVIDER", True) is not None


def _composed(middlewares: Sequence[ServerMiddleware[Any]]) -> CallNext:
    chain: CallNext = _unanswered
    for middleware in reversed(middlewares):
        chain = partial(middleware, call_next=chain)
    return chain


def meta_of(params: Mapping[str, Any]) -> RequestParamsMeta | None:
    """As the SDK reads it: None if there is none, or a wrong one."""
    if "_meta" not in params:
        return None
    meta = params["_meta"]
    if type(meta) is dict and meta.keys().isdisjoint(_TOKENS):
        # Without a token, any object is a right one.
        return cast("RequestParamsMeta", meta)
    try:
        return RequestParams.model_validate({"_meta": meta}, by_name=False).meta
    except ValidationError:
        return None


async def _unanswered(_context: Context) -> HandlerResult:
    raise AssertionError("calls are answered by a middleware")


def _nothing() -> None:
    """Nothing has to happen first."""


@dataclass
class _Context(_JSONRPCDispatchContext[TransportContext]):
    """As the SDK makes it; but somebody learns that something is about to be sent to the client."""

    before_sending: Callable[[], None] = _nothing

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if not self._closed:
            self.before_sending()
        await super().notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self.can_send_request:
            self.before_sending()
        return await super().send_raw_request(method, params, opts)


class SessionCalls:
    """The calls of one legacy session that somebody else than the SDK has read."""

    def __init__(self, chain: CallChain, connection: Connection) -> None:
        assert isinstance(connection.outbound, JSONRPCDispatcher)
        self.connection = connection
        self._dispatcher: JSONRPCDispatcher[TransportContext] = connection.outbound
        self._chain = chain

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done, and the session has not ended."""
        return self.connection.client_params is not None and self._dispatcher._running

    def begin(
        self,
        request: JSONRPCRequest,
        metadata: ServerMessageMetadata | None,
        answer: Answer,
        before_sending: Callable[[], None] = _nothing,
    ) -> None:
        """Handle a call in a task of its session. `answer` is called once: also if the call was cancelled, or the
        session ended; then it may not wait.
        """
        dispatcher = self._dispatcher
        context = _Context(
            transport=_DUPLEX,
            _dispatcher=dispatcher,
            _request_id=request.id,
            message_metadata=metadata,
            _progress_token=progress_token_from_params(request.params),
            before_sending=before_sending,
        )
        scope = anyio.CancelScope()
        # Where the dispatcher finds it when the client cancels it.
        dispatcher._in_flight[coerce_request_id(request.id)] = _InFlight(scope=scope, dctx=context)
        assert dispatcher._tg is not None
        dispatcher._tg.start_soon(self._handle, request, context, scope, answer)

    async def _handle(
        self, request: JSONRPCRequest, context: _Context, scope: anyio.CancelScope, answer: Answer
    ) -> None:
        """As the dispatcher does, which also writes the response."""
        outcome: Outcome = _CANCELLED
        try:
            with scope:
                try:
                    result = await self._chain.answer(context, self.connection, request.params or {})
                finally:
                    self._leave(request, context)
                if not context.cancel_requested.is_set():
                    outcome = result
        except asyncio.CancelledError:
            if not context.cancel_requested.is_set():
                await answer(_CLOSED)
            raise
        except Exception as error:
            if not context.cancel_requested.is_set():
                known = handler_exception_to_error_data(error)
                if known is None:
                    logger.exception("Cannot answer a request")
                outcome = known or ErrorData(code=0, message=str(error))
        await answer(outcome)

    def _leave(self, request: JSONRPCRequest, context: _Context) -> None:
        context.close()
        key, under_way = coerce_request_id(request.id), self._dispatcher._in_flight
        if (entry := under_way.get(key)) is not None and entry.dctx is context:
            del under_way[key]

    async def write(self, request: JSONRPCRequest, outcome: Outcome) -> None:
        """Send the response as the SDK does, on the stream of the request, which must be open or resumable."""
        if outcome is _CLOSED:
            error = partial(self._dispatcher._write_error, request.id, _CLOSED)
            await self._dispatcher._final_write(error, shield=True, timeout=_LAST_WRITE, describe="the last error")
        elif isinstance(outcome, ErrorData):
            await self._dispatcher._write_error(request.id, outcome)
        else:
            await self._dispatcher._write_result(request.id, outcome)
