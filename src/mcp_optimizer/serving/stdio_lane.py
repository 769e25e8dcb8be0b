"""A short way for the calls of the client on stdio, past the SDK's dispatcher to the same middlewares.

Opens once the SDK has served the client's first message, whose connection it uses from then on; until then, and for
everything but ordinary calls, the SDK answers. Fed by the reader of stdin, which has read and admitted each message. A
cancelled call is not answered; when the connection ends, its calls are cancelled and answered with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import ErrorData, JSONRPCRequest
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_optimizer.relay.sdk_calls import CALL, CallChain, Context, Outcome
from mcp_optimizer.relay.sdk_internals import connection_of
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.gate import ClientRequest
from mcp_optimizer.serving.lane import CallChannel, error_of, unknown_error

logger = logging.getLogger(__name__)

Respond = Callable[[types.RequestId, Outcome], Awaitable[None]]
"""Sends the response to a request."""

_CLOSED = ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
_LAST_ANSWER = 1.0
"""Seconds for the last response of a call when its connection ends."""
_LONGEST_END = 5.0


class StdioLane:
    """The calls of one client."""

    def __init__(self, server: Server[Any]) -> None:
        self._middlewares = list(server.middleware)
        self._served: _Served | None = None
        self._under_way: dict[types.RequestId, _Call] = {}
        self._tasks = BackgroundTasks(logger, "Cannot answer a call")
        self._has_ended = False
        server.middleware.insert(0, self._watch)

    async def _watch(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A middleware of the SDK's server, before all others: learns the client's connection."""
        try:
            return await call_next(ctx)
        finally:
            if self._served is None and not self._has_ended:
                self._open(ctx)

    def _open(self, ctx: Context) -> None:
        connection, is_modern = connection_of(ctx), ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_modern and connection.client_params is None:
            # It is still shaking hands.
            return
        self._served = _Served(CallChain(self._middlewares, ctx.lifespan_context), connection, is_modern)
        if not is_modern:
            # Its calls end before the client counts as gone, which was registered before, and when it can no longer be
            # asked anything.
            connection.exit_stack.push_async_callback(self.end)

    def takes(self, message: ClientRequest | JSONRPCRequest, respond: Respond) -> bool:
        """Begin a call, if this message is one for this lane. Otherwise the SDK answers it."""
        if self._served is None or message.method != CALL or message.params is None:
            return False
        if (connection := self._served.connection_for(message.params)) is None:
            return False
        call = _Call(message, self._served, connection, respond)
        self._under_way[coerce_request_id(message.id)] = call
        call.task = self._tasks.spawn(self._answer(call))
        return True

    def cancelled(self, params: Mapping[str, Any] | None) -> None:
        """The client no longer wants the response to a request, if it is one of these."""
        request_id = cancelled_request_id_from_params(params)
        # At once, because a call that has not begun never ends.
        call = self._under_way.pop(coerce_request_id(request_id), None) if request_id is not None else None
        if call is not None:
            call.cancel()

    async def end(self) -> None:
        """The connection has ended: nothing is begun any more, and what is in progress is cancelled."""
        self._has_ended, self._served = True, None
        if len(self._tasks):
            with anyio.move_on_after(_LONGEST_END, shield=True):
                # Each has begun then, and can be answered.
                await asyncio.sleep(0)
                await self._tasks.close()

    async def _answer(self, call: _Call) -> None:
        outcome: Outcome
        try:
            outcome = await call.result()
        except asyncio.CancelledError:
            if not call.is_cancelled:
                await call.answer_at_last(_CLOSED)
            raise
        except (MCPError, ValidationError) as error:
            outcome = error_of(error)
        except Exception as error:
            # Whatever it is costs only this call.
            logger.exception("Cannot answer a call")
            outcome = unknown_error(error, is_modern=call.is_modern)
        finally:
            # From here on the client cannot cancel it, and may use the id again once it is answered.
            call.channel.close()
            key = coerce_request_id(call.request_id)
            if self._under_way.get(key) is call:
                del self._under_way[key]
        if not call.is_cancelled:
            await call.respond(call.request_id, outcome)


class _Served:
    """How the SDK serves the client: in which era, and on which connection."""

    def __init__(self, chain: CallChain, connection: Connection, is_modern: bool) -> None:
        self.chain = chain
        self.is_modern = is_modern
        self._connection = connection
        self._said: tuple[str, Any, Any] | None = None
        """What a modern client says of itself in each request; nearly always the same."""
        self._meta: Any = None
        """The same, as it was read."""

    def connection_for(self, params: Mapping[str, Any]) -> Connection | None:
        """The connection of a call; None for a call of the other era, or one without what its era requires."""
        meta: Any = params.get("_meta")
        is_modern = type(meta) is dict and types.PROTOCOL_VERSION_META_KEY in meta
        if is_modern is not self.is_modern:
            return None
        if not is_modern or meta == self._meta:
            return self._connection
        route = classify_inbound_request({"method": CALL, "params": params})
        if isinstance(route, InboundLadderRejection):
            return None
        said = (route.protocol_version, route.client_info, route.client_capabilities)
        if said != self._said:
            # Nothing is kept with a modern connection, so that calls can share one.
            self._connection = Connection.from_envelope(*said, outbound=self._connection.outbound)
        # A token is another in each call, and may be long.
        self._said, self._meta = said, None if "progressToken" in meta else meta
        return self._connection


class _Call:
    """A call in progress."""

    __slots__ = ("_connection", "_params", "_served", "channel", "is_cancelled", "request_id", "respond", "task")

    def __init__(
        self, message: ClientRequest | JSONRPCRequest, served: _Served, connection: Connection, respond: Respond
    ) -> None:
        params = message.params or {}
        self.request_id = message.id
        self.respond = respond
        self.channel = CallChannel(message.id, params, connection.outbound, can_ask=not served.is_modern)
        self.is_cancelled = False
        """Whether its client cancelled it, so that it gets no response."""
        self.task: asyncio.Task[None] | None = None
        self._params = params
        self._served = served
        self._connection = connection

    @property
    def is_modern(self) -> bool:
        return self._served.is_modern

    async def result(self) -> dict[str, Any]:
        return await self._served.chain.answer(self.channel, self._connection, self._params)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.channel.cancel_requested.set()
        if self.task is not None:
            self.task.cancel()

    async def answer_at_last(self, outcome: Outcome) -> None:
        with anyio.move_on_after(_LAST_ANSWER, shield=True):
            await self.respond(self.request_id, outcome)
