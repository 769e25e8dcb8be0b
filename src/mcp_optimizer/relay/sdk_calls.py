"""Requests that are handled in one of the SDK's sessions without its receive loop and its streams.

For a transport of ours that has read a request itself: the same middlewares run with the same context, a cancellation
finds it, and it ends with its session. What the SDK does not document is used here and in `sdk_internals.py` only, and
checked by `tests/contract/test_sdk_internals.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.dispatcher import CallOptions, coerce_request_id
from mcp.shared.jsonrpc_dispatcher import (
    JSONRPCDispatcher,
    _InFlight,
    _JSONRPCDispatchContext,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCRequest

logger = logging.getLogger(__name__)

Outcome = dict[str, Any] | ErrorData
"""The result of a request, or its error."""

Answer = Callable[[Outcome], Awaitable[None]]

_DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
_CANCELLED = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")
_CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
_LAST_WRITE = 1.0
"""Seconds for the error of a request whose session ends."""


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
    """The requests of one legacy session that somebody else than the SDK has read."""

    def __init__(self, server: Server[Any], connection: Connection, lifespan_state: Any) -> None:
        assert isinstance(connection.outbound, JSONRPCDispatcher)
        self.connection = connection
        self._dispatcher: JSONRPCDispatcher[TransportContext] = connection.outbound
        self._runner = ServerRunner(server, connection, lifespan_state)

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
        """Handle a request in a task of its session. `answer` is called once: also if the request was cancelled, or the
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
                    result = await self._runner.on_request(context, request.method, request.params)
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
