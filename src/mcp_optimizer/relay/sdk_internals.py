"""Every use of what the `mcp` package does not document: private members, and attributes that it only reads.

Each is a small function or base class with its reason; nobody else in this package touches such a member. What is used
here is checked by `tests/contract/test_sdk_internals.py`, and `pyproject.toml` admits only the releases it was run on.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Generic, TypeVar

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.transport_context import TransportContext
from mcp_types import RequestId
from mcp_types.methods import validate_client_result
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_optimizer.relay.sdk_calls import CallChain, SessionCalls
from mcp_optimizer.relay.sdk_streams import OpenTransport
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

Events = TypeVar("Events", bound=EventStore)


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection that a request came on, which lasts as long as its client does.

    Its `state` and `exit_stack` are public, but a request has no public way to it.
    """
    return _connection(ctx.session)


def _connection(session: ServerSession) -> Connection:
    return session._connection


async def ask_client(
    session: ServerSession, method: str, params: Mapping[str, Any], *, on_request: bool, request_id: RequestId | None
) -> dict[str, Any]:
    """A client's raw answer to a question, on the stream of the request in progress or on the connection.

    As the session's own `send_request` does, which has no way to give the question an id. Raises MCPError, and
    ValidationError for an answer that the protocol does not have.
    """
    channel = session._request_outbound if on_request else _connection(session).outbound
    options = CallOptions(request_id=request_id) if request_id is not None else None
    answer = await channel.send_raw_request(method, params, options)
    with contextlib.suppress(KeyError):
        validate_client_result(method, session.protocol_version, answer)
    return answer


def end_unless_used(manager: StreamableHTTPSessionManager, session: str, seconds: float) -> None:
    """End a session in so many seconds, unless its client uses it before.

    The SDK counts down the idle time of every session, and its next request stops that. There is one time for all
    sessions; but one that was just opened, and that nobody may know of, should not stay as long.
    """
    transport = manager._server_instances.get(session)
    scope = transport.idle_scope if transport is not None else None
    if scope is not None and scope.deadline != math.inf:
        scope.deadline = min(scope.deadline, anyio.current_time() + seconds)


def _is_idle(transport: StreamableHTTPServerTransport) -> bool:
    """Whether it counts down its idle time, which it does while it has no request in progress."""
    scope = transport.idle_scope
    return scope is not None and scope.deadline != math.inf


def _caller_of(owner: AuthorizationContext | None) -> str | None:
    """Whose session it is; None for everybody who is not known."""
    return owner["client_id"] if owner is not None else None


class OpenSessionManager(StreamableHTTPSessionManager, Generic[Events]):
    """The SDK's sessions over HTTP, behind a gate of our own, each with a store of events and an id of our own."""

    def __init__(self, server: Server[Any], *, gate: Callable[[ASGIApp], ASGIApp], **options: Any) -> None:
        """`gate`: put around the handling of requests, in the place of the SDK's own look at the size of bodies."""
        super().__init__(server, **options)
        self.asgi_app = gate(self._handle_request)  # type: ignore[assignment]
        self._name: ContextVar[str] = ContextVar("session", default="")
        self._calls: dict[str, SessionCalls] = {}
        self._dismissing = BackgroundTasks(logger, "A session that was ended to make room is still open")

    def __len__(self) -> int:
        """How many sessions are open. The SDK bounds their number and does not tell it."""
        return len(self._server_instances)

    def new_events(self) -> Events:
        """The store of a session that is about to begin."""
        raise NotImplementedError

    def admitted(self, session: str | None, events: Events) -> None:
        """A session began."""
        raise NotImplementedError

    async def begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request without a session."""
        await self.serve_session("", scope, receive, send)

    async def go_on(self, session: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request on a session, whether or not it is known here."""
        await self.serve_session(session, scope, receive, send)

    def has_session(self, session: str) -> bool:
        return session in self._server_instances

    async def serve_session(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """As the SDK serves it. A session that begins with this request gets this name, if one is given."""
        self._name.set(name)
        if (transport := self._server_instances.pop(name, None)) is not None:
            # The last in the order is the one that was used last.
            self._server_instances[name] = transport
        await super()._handle_stateful_request(scope, receive, send)

    def use_session(self, name: str, scope: Scope) -> OpenTransport | None:
        """The open session of this name, if whoever sends this request began it."""
        user = scope.get("user")
        owner = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        if name not in self._server_instances or owner != self._session_owners.get(name):
            return None
        # The last in the order is the one that was used last.
        transport = self._server_instances[name] = self._server_instances.pop(name)
        return transport if isinstance(transport, OpenTransport) else None

    def remember(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """A session shakes hands: from now on its calls can be handled without the SDK's transport."""
        connection = connection_of(ctx)
        name = connection.session_id
        if name is None or ((known := self._calls.get(name)) is not None and known.connection is connection):
            return
        calls = self._calls[name] = SessionCalls(self.chain, connection)
        connection.exit_stack.callback(self._forget, name, calls)

    def _forget(self, name: str, calls: SessionCalls) -> None:
        if self._calls.get(name) is calls:
            del self._calls[name]

    def calls_of(self, session: str) -> SessionCalls | None:
        return self._calls.get(session)

    @cached_property
    def chain(self) -> CallChain:
        """The middlewares of the server, as they are when its first session begins or its first call arrives."""
        return CallChain(self.app.middleware, self._lifespan_state)

    def answer_call(
        self, context: DispatchContext[TransportContext], connection: Connection, params: Mapping[str, Any]
    ) -> Awaitable[dict[str, Any]]:
        """The result of a call that belongs to no session; raises what the middlewares raise."""
        return self.chain.answer(context, connection, params)

    def is_opened_again(self, session: str) -> bool:
        """Whether a session that is about to begin has been there before."""
        raise NotImplementedError

    def open_sessions(self) -> list[str]:
        return list(self._server_instances)

    async def discard(self, session: str) -> None:
        """End a session, with its streams, if it is open."""
        if (transport := self._server_instances.get(session)) is not None:
            await self._discard_session(session, transport)

    @property
    def is_full(self) -> bool:
        return self.max_sessions is not None and len(self._server_instances) >= self.max_sessions

    def _make_room(self, name: str, opener: AuthorizationContext | None) -> bool:
        """End a session so that another one fits, if there is one to end. In the same turn of the event loop, so that
        nobody else takes the place.

        Whoever has most gives one up for somebody who has fewer: one that is not in use, if there is any. Nobody's new
        session takes a place from somebody who has no more than they. A session that is opened again has been there
        before; it also takes the place of one that is not in use, of its own caller or of one who has more.
        """
        if (ended := self._given_up(name, _caller_of(opener))) is None:
            return False
        transport = self._server_instances.pop(ended)
        self._session_owners.pop(ended, None)
        self._dismissing.spawn(self._discard_session(ended, transport))
        return True

    def _given_up(self, name: str, opener: str | None) -> str | None:
        """The session that is ended for one of this name, of those used least lately; None if there is none."""
        owners = {session: _caller_of(self._session_owners.get(session)) for session in self._server_instances}
        held = Counter(owners.values())
        [(holder, most)] = held.most_common(1)
        idle = (session for session, transport in self._server_instances.items() if _is_idle(transport))
        if most >= held[opener] + 2:
            of_holder = [session for session, owner in owners.items() if owner == holder]
            return next((session for session in idle if owners[session] == holder), of_holder[0])
        if not self.is_opened_again(name):
            return None
        return next((one for one in idle if owners[one] == opener or held[owners[one]] > held[opener]), None)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        # As the SDK does; but a session that was ended to make room may have been opened again, under the same name,
        # before its task ends.
        if self._server_instances.get(session_id) is transport:
            del self._server_instances[session_id]
            self._session_owners.pop(session_id, None)
        if not transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await transport.terminate()

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        if session is None:
            await self.begin(scope, receive, send)
        else:
            await self.go_on(session, scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        # The SDK gives all sessions one store, where streams of two sessions can have the same name.
        self.event_store = events = self.new_events()
        name = self._name.get()
        transport = self._admit_named(name, requestor) if name else super()._admit_session(requestor)
        if transport is not None:
            self.admitted(transport.mcp_session_id, events)
        return transport

    def _admit_named(self, name: str, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """As the SDK does, which makes ids that nobody else can read, before it looks at the request."""
        if self.is_full and not self._make_room(name, requestor):
            return None
        transport = OpenTransport(
            mcp_session_id=name,
            is_json_response_enabled=self.json_response,
            event_store=self.event_store,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        if requestor is not None:
            self._session_owners[name] = requestor
        self._server_instances[name] = transport
        return transport
