"""Answers clients' messages on any transport and in either era: the dispatcher beneath the SDK's runner.

A transport reads and admits a message; here it becomes a task with a way back to its client, and its result or
exception becomes the outcome that the transport writes. Cancellations, and answers to questions, are matched to their
requests here. Built on what the SDK exports for this: `DispatchContext`, `Outbound` and `ServerRunner`. For each
request, the SDK's own dispatcher creates a task in a task group, a cancel scope, events and several stream hops, which
takes longer than everything we do in a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import modern_error_data
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnRequest
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    progress_token_from_params,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
    RequestParams,
    RequestParamsMeta,
)
from pydantic import ValidationError

from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.messages import CALL, Message, Outcome, notice
from mcp_optimizer.serving.tracing import asking

logger = logging.getLogger(__name__)

CANCELLED = "notifications/cancelled"

CLOSED = ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
"""The outcome of a request whose connection ends before it is answered."""

_LONGEST_END = 5.0
"""Seconds that the requests of an ending connection have to finish."""

_PROGRESS = frozenset(("progressToken", "progress_token"))

_DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
_ONE_WAY = TransportContext(kind="jsonrpc", can_send_request=False)

Answer = Callable[[Outcome | None], None]
"""Receives the outcome of a request, once; None if its client cancelled it."""


class Way(Protocol):
    """The way back to a client, for one request or for messages outside of requests."""

    def tell(self, message: Message) -> None:
        """Queue a message; messages are sent in the order of these calls."""

    async def drained(self) -> None:
        """Wait until there is room for more messages."""


class RequestContext:
    """One message's way back to its client until it is answered: an SDK `DispatchContext`."""

    __slots__ = (
        "_asks",
        "_cancel_requested",
        "_is_closed",
        "_params",
        "_way",
        "is_cancelled",
        "message_metadata",
        "request_id",
    )

    def __init__(
        self,
        request_id: RequestId | None,
        params: Mapping[str, Any] | None,
        way: Way,
        asks: ClientDispatcher | None = None,
        metadata: ServerMessageMetadata | None = None,
    ) -> None:
        """`asks`: sends questions to the client; None if it cannot be asked."""
        self.request_id = request_id
        self.message_metadata = metadata
        self.is_cancelled = False
        """Whether the client cancelled the request."""
        self._params = params
        self._way = way
        self._asks = asks
        self._is_closed = False
        self._cancel_requested: anyio.Event | None = None

    @property
    def transport(self) -> TransportContext:
        return _DUPLEX if self._asks is not None else _ONE_WAY

    @property
    def can_send_request(self) -> bool:
        return self._asks is not None and not self._is_closed

    @property
    def cancel_requested(self) -> anyio.Event:
        # Created on demand: none of our code waits for it.
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
        return self._cancel_requested

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._asks is None or self._is_closed:
            raise NoBackChannelError(method)
        return await self._asks.ask(method, params, opts, self._way)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        del opts
        if not self._is_closed:
            self._way.tell(notice(method, params))
            await self._way.drained()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if (token := progress_token_from_params(self._params)) is not None:
            more = {"total": total, "message": message}
            known = {key: value for key, value in more.items() if value is not None}
            await self.notify("notifications/progress", {"progressToken": token, "progress": progress, **known})

    def cancel(self) -> None:
        self.is_cancelled = True
        self.cancel_requested.set()

    def close(self) -> None:
        """Mark the request as answered: nothing more is sent for it."""
        self._is_closed = True


async def outcome_of(
    handle: OnRequest, context: RequestContext, method: str, params: Mapping[str, Any] | None
) -> Outcome:
    """The outcome that a client gets, whatever happens: the only place where an exception becomes an error."""
    try:
        return await handle(context, method, params)
    except (MCPError, ValidationError) as error:
        return modern_error_data(error)
    except Exception:
        # The exception's text goes only to the log.
        logger.exception("Cannot answer a request")
        return ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")


class InOrder:
    """Several middlewares as one, because the SDK puts a function of its own around each, for every message."""

    def __init__(self, *outermost_first: Callable[..., Awaitable[HandlerResult]]) -> None:
        self.innermost_first = outermost_first[::-1]

    def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Coroutine[Any, Any, HandlerResult]:
        return cast("Coroutine[Any, Any, HandlerResult]", self.around(call_next)(ctx))

    def around(self, call_next: CallNext) -> CallNext:
        """What begins with the outermost and ends with `call_next`."""
        for middleware in self.innermost_first:
            call_next = partial(middleware, call_next=call_next)
        return call_next


class CallChain:
    """Answers calls as the SDK's runner would, by the server's middlewares alone, one of which answers every call. The
    runner makes its chain anew for each message and reads `_meta` with a model: a twentieth of a call's work.
    """

    def __init__(self, server: Server[Any], lifespan: Any) -> None:
        chain: CallNext = _unanswered
        for middleware in reversed(server.middleware):
            if isinstance(middleware, InOrder):
                chain = middleware.around(chain)
            else:
                chain = partial(middleware, call_next=chain)
        self._chain = chain
        self._lifespan = lifespan

    async def answer(
        self, connection: Connection, context: DispatchContext[TransportContext], params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result of a call. Raises what the SDK raises."""
        meta, received = _meta_of(params), context.message_metadata
        of_http = received if isinstance(received, ServerMessageMetadata) else ServerMessageMetadata()
        asked: ServerRequestContext[Any, Any] = ServerRequestContext(
            session=ServerSession(context, connection, request_meta=meta if context.request_id is not None else None),
            lifespan_context=self._lifespan,
            protocol_version=connection.protocol_version,
            method=CALL,
            params=params,
            request_id=context.request_id,
            meta=meta,
            request=of_http.request_context,
            close_sse_stream=of_http.close_sse_stream,
            close_standalone_sse_stream=of_http.close_standalone_sse_stream,
        )
        result = await self._chain(asked)
        if isinstance(result, ErrorData):
            raise MCPError.from_error_data(result)
        if not isinstance(result, dict):
            raise TypeError(f"a call was answered with {type(result).__name__}")
        # A middleware may keep what it answered with.
        return dict(result)


async def _unanswered(_context: ServerRequestContext[Any, Any]) -> HandlerResult:
    raise AssertionError("answered by a middleware")


def _meta_of(params: Mapping[str, Any]) -> RequestParamsMeta | None:
    """The `_meta` of a call as the SDK reads it; None if there is none, or a malformed one."""
    if "_meta" not in params:
        return None
    meta = params["_meta"]
    if type(meta) is dict and _PROGRESS.isdisjoint(meta):
        # Without a token, every object is well-formed.
        return cast("RequestParamsMeta", meta)
    try:
        return RequestParams.model_validate({"_meta": meta}, by_name=False).meta
    except ValidationError:
        return None


class _UnderWay:
    """A request in progress."""

    __slots__ = ("_is_settled", "_task", "answer", "context", "key")

    def __init__(self, key: str, context: RequestContext, answer: Answer) -> None:
        self.key = key
        self.context = context
        self.answer = answer
        self._is_settled = False
        self._task: asyncio.Task[None] | None = None

    def begun(self, task: asyncio.Task[None]) -> None:
        """Record the task that handles the request."""
        self._task = task

    def cancel(self) -> None:
        """Cancel the request on behalf of its client."""
        self.context.cancel()
        if self._task is not None:
            self._task.cancel()

    def settle(self, outcome: Outcome) -> None:
        """Answer the request, unless it is answered already."""
        if not self._is_settled:
            self._is_settled = True
            self.context.close()
            self.answer(None if self.context.is_cancelled else outcome)


class ClientDispatcher:
    """The messages of one connection, and the SDK's `Outbound` to its client."""

    def __init__(self, way: Way) -> None:
        """`way`: for messages outside of requests."""
        self._way = way
        self._under_way: dict[str, _UnderWay] = {}
        self._questions: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._tasks = BackgroundTasks(logger, "Cannot handle a message")
        self._is_closed = False

    def __len__(self) -> int:
        """The number of requests in progress."""
        return len(self._under_way)

    def has(self, request_id: RequestId) -> bool:
        """Whether a request with this id is in progress. The SDK considers "7" and 7 the same."""
        return str(request_id) in self._under_way

    def begin(
        self, request: JSONRPCRequest, context: RequestContext, handle: OnRequest, answer: Answer
    ) -> asyncio.Task[None]:
        """Handle a request in a task of its own."""
        entry = _UnderWay(str(request.id), context, answer)
        self._under_way[entry.key] = entry
        task = self._tasks.spawn(self._handle(entry, request, handle))
        entry.begun(task)
        # A task that is cancelled before it starts runs none of its own code.
        task.add_done_callback(lambda _task: self._settle(entry, CLOSED))
        return task

    async def _handle(self, entry: _UnderWay, request: JSONRPCRequest, handle: OnRequest) -> None:
        self._settle(entry, await outcome_of(handle, entry.context, request.method, request.params))

    def _settle(self, entry: _UnderWay, outcome: Outcome) -> None:
        if self._under_way.get(entry.key) is entry:
            del self._under_way[entry.key]
        entry.settle(outcome)

    def take(self, message: JSONRPCMessage, notified: OnNotify, metadata: ServerMessageMetadata | None = None) -> None:
        """Handle a message that is not a request: a notification, or the answer to a question."""
        if isinstance(message, JSONRPCNotification):
            if message.method == CANCELLED:
                self._cancel(cancelled_request_id_from_params(message.params))
            context = RequestContext(None, message.params, self._way, self, metadata)
            self._tasks.spawn(_handled(notified, context, message))
        elif not isinstance(message, JSONRPCRequest) and (reply := self._questions.get(str(message.id))) is not None:
            if reply.done():
                return
            if isinstance(message, JSONRPCError):
                error = message.error
                reply.set_exception(MCPError(error.code, error.message, error.data))
            else:
                reply.set_result(message.result)

    def _cancel(self, request_id: RequestId | None) -> None:
        # Removed at once, because the client may reuse the id from now on.
        entry = self._under_way.pop(str(request_id), None) if request_id is not None else None
        if entry is not None:
            entry.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self.ask(method, params, opts, self._way)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        del opts
        if not self._is_closed:
            self._way.tell(notice(method, params))
            await self._way.drained()

    async def ask(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None, way: Way
    ) -> dict[str, Any]:
        """The client's answer to a question. Raises MCPError if it refuses, or its connection ends."""
        if self._is_closed:
            raise MCPError.from_error_data(CLOSED)
        number = (opts or {}).get("request_id") or self._next_id()
        if (key := str(number)) in self._questions:
            raise ValueError(f"a question with the id {number!r} is open already")
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[key] = reply
        try:
            with asking(method, params, number) as sent:
                question: Message = {"jsonrpc": "2.0", "id": number, "method": method}
                way.tell({**question, "params": sent} if sent else question)
                return await reply
        except asyncio.CancelledError:
            way.tell(notice(CANCELLED, {"requestId": number, "reason": "caller cancelled"}))
            raise
        finally:
            del self._questions[key]

    def _next_id(self) -> int:
        self._last += 1
        while str(self._last) in self._questions:
            self._last += 1
        return self._last

    async def close(self) -> None:
        """Close after the connection has ended: requests in progress are cancelled and answered with an error."""
        self._is_closed = True
        self._tasks.cancel()
        for reply in self._questions.values():
            if not reply.done():
                reply.set_exception(MCPError.from_error_data(CLOSED))
                # Marks the exception as retrieved: the waiter may have been cancelled just now.
                reply.exception()
        if len(self._tasks):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._tasks.settled(), _LONGEST_END)
        # The last outcomes are delivered in the next turn of the event loop.
        await asyncio.sleep(0)


async def _handled(notified: OnNotify, context: RequestContext, message: JSONRPCNotification) -> None:
    await notified(context, message.method, message.params)
