"""Every use of what the `mcp` package does not document: private members, and attributes that it only reads.

Each is a small function or base class with its reason; nobody else in this package touches such a member. What is used
here is checked by `tests/contract/test_sdk_internals.py`, and `pyproject.toml` admits only the releases it was run on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

Events = TypeVar("Events", bound=EventStore)


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection that a request came on, which lasts as long as its client does.

    Its `state` and `exit_stack` are public, but a request has no public way to it.
    """
    return ctx.session._connection


def end_unless_used(manager: StreamableHTTPSessionManager, session: str, seconds: float) -> None:
    """End a session in so many seconds, unless its client uses it before.

    The SDK counts down the idle time of every session, and its next request stops that. There is one time for all
    sessions; but one that was just opened, and that nobody may know of, should not stay as long.
    """
    transport = manager._server_instances.get(session)
    scope = transport.idle_scope if transport is not None else None
    if scope is not None and scope.deadline != math.inf:
        scope.deadline = min(scope.deadline, anyio.current_time() + seconds)


class OpenSessionManager(StreamableHTTPSessionManager, Generic[Events]):
    """The SDK's sessions over HTTP, behind a gate of our own, and each with a store of events of its own."""

    def __init__(self, server: Server[Any], *, gate: Callable[[ASGIApp], ASGIApp], **options: Any) -> None:
        """`gate`: put around the handling of requests, in the place of the SDK's own look at the size of bodies."""
        super().__init__(server, **options)
        self.asgi_app = gate(self._handle_request)  # type: ignore[assignment]

    def __len__(self) -> int:
        """How many sessions are open. The SDK bounds their number and does not tell it."""
        return len(self._server_instances)

    def new_events(self) -> Events:
        """The store of a session that is about to begin."""
        raise NotImplementedError

    def admitted(self, session: str | None, events: Events) -> None:
        """A session began."""
        raise NotImplementedError

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        # The SDK gives all sessions one store, where streams of two sessions can have the same name.
        self.event_store = events = self.new_events()
        transport = super()._admit_session(requestor)
        if transport is not None:
            self.admitted(transport.mcp_session_id, events)
        return transport
