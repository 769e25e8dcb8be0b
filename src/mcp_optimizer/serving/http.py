"""The gateway over HTTP: `/mcp` for clients, `/health` and `/ready` for monitoring, and pages if given.

Host and Origin are checked on every MCP request, so a web page cannot reach a gateway on loopback. A session that its
client never used is ended soon.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INTERNAL_ERROR
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.callers.door import Door
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.relay.sdk_internals import OpenSessionManager, end_unless_used
from mcp_optimizer.serving.event_store import KeptEvents, SessionEvents
from mcp_optimizer.serving.first_events import HeldFirstEvents
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http_gate import HttpGate
from mcp_optimizer.serving.large_bodies import LargeBodies, has_left, leave_large
from mcp_optimizer.serving.resource_metadata import metadata_routes

_LOOPBACK_HOSTS = ("127.0.0.1:*", "localhost:*", "[::1]:*")
_RETRY_MS = 1_000
"""Milliseconds after which a client that lost a stream should ask for the rest."""
_RETRY_AFTER = 5
"""Seconds after which a client of a stopping gateway should try again."""
_USUAL_ANSWER = 1_000_000
"""Bytes of a client's answer to a question; more is not waited for during shutdown."""
_UNUSED = 60.0
"""Seconds after which an unused session ends: its client left before it received the session."""


def build_http_app(
    server: Server[Any],
    catalog: LiveCatalog,
    *,
    host: str,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    version: str,
    is_ready: Callable[[], bool],
    takes_calls: Callable[[], bool],
    gate: Gate | None = None,
    door: Door | None = None,
    routes: Sequence[Route] = (),
) -> Starlette:
    """The ASGI application; its lifespan runs the MCP sessions.

    `is_ready` says whether a tool can be found and called now. `takes_calls` becomes false when the stopping gateway
    only finishes calls in progress. Without a `door`, everybody may call.
    """
    if not is_loopback(host) and not allowed_hosts:
        raise ConfigurationError(
            f"Serving on {host} is reachable from other machines. If you want that, list the host names that "
            "clients may use in --allowed-hosts, such as 'gateway.internal:8765'."
        )

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "version": version})

    async def ready(_request: Request) -> JSONResponse:
        counts = Counter(state.status.value for state in catalog.snapshot.states.values())
        can_call = is_ready()
        return JSONResponse({"ready": can_call, "servers": dict(counts)}, status_code=200 if can_call else 503)

    hosts = admitted_hosts(allowed_hosts, allowed_origins)
    sessions = Sessions(server, gate=gate or Gate(), hosts=hosts, door=door)
    described = metadata_routes(door, hosts) if door is not None and door.has_issuers else ()
    server.middleware.insert(0, sessions.leave_large)
    mcp = Route("/mcp", endpoint=StreamableHTTPASGIApp(sessions))
    known = [mcp, Route("/health", health), Route("/ready", ready), *described, *routes]
    # The last one keeps Starlette from sending others to a similar address, at whatever host they name.
    app = Starlette(routes=[*known, Route("/{path:path}", _nowhere)], lifespan=lambda _app: sessions.run())
    app.add_middleware(UnusedSessions, manager=sessions)
    app.add_middleware(LargeBodies)
    app.add_middleware(HeldFirstEvents)
    app.add_middleware(StrippedHeaders)
    app.add_middleware(LastCalls, takes_calls=takes_calls)
    return app


async def _nowhere(_request: Request) -> Response:
    return PlainTextResponse("Not Found", status_code=404)


class Sessions(OpenSessionManager[SessionEvents]):
    """The SDK's sessions behind the gate, with resumable streams."""

    def __init__(
        self, server: Server[Any], *, gate: Gate, hosts: TransportSecuritySettings, door: Door | None = None
    ) -> None:
        limits = gate.limits
        super().__init__(
            server,
            gate=lambda app: HttpGate(app, gate, hosts, door),
            max_sessions=limits.sessions,
            security_settings=hosts,
            retry_interval=_RETRY_MS,
        )
        self._events = KeptEvents(size=limits.kept_events)
        self._of_session: WeakValueDictionary[str | None, SessionEvents] = WeakValueDictionary()

    def new_events(self) -> SessionEvents:
        return self._events.of_session()

    def admitted(self, session: str | None, events: SessionEvents) -> None:
        self._of_session[session] = events

    async def leave_large(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """A middleware of the MCP server: large values bypass the SDK and cannot be sent again."""
        result = await leave_large(ctx, call_next)
        if isinstance(ctx.request, Request) and has_left(ctx):
            events = self._of_session.get(ctx.request.headers.get(MCP_SESSION_ID_HEADER))
            if events is not None:
                events.leave_out(str(ctx.request_id))
        return result


class LastCalls:
    """During shutdown, new MCP requests get 503 with Retry-After.

    Answers to questions and notifications still pass, because calls in progress may need them to finish.
    """

    def __init__(self, app: ASGIApp, takes_calls: Callable[[], bool]) -> None:
        self._app = app
        self._takes_calls = takes_calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["type"] == "http" and scope["path"] == "/mcp" and scope["method"] == "POST"
        if not is_call or self._takes_calls():
            await self._app(scope, receive, send)
            return
        read = await _beginning(receive)
        body = b"".join(message.get("body", b"") for message in read)
        if read[-1].get("more_body") or _is_request(body):
            stopping = {"code": INTERNAL_ERROR, "message": "The gateway is stopping. Call again when it is back."}
            answer = {"jsonrpc": "2.0", "id": None, "error": stopping}
            refusal = JSONResponse(answer, status_code=503, headers={"retry-after": str(_RETRY_AFTER)})
            await refusal(scope, receive, send)
            return
        await self._app(scope, _again(read, receive), send)


async def _beginning(receive: Receive) -> list[Message]:
    """The messages of a request's body, if it has a usual size."""
    read, size = [await receive()], 0
    while read[-1].get("more_body") and (size := size + len(read[-1].get("body", b""))) < _USUAL_ANSWER:
        read.append(await receive())
    return read


def _is_request(body: bytes) -> bool:
    """Whether the sender waits for a response. Unreadable messages get one too."""
    try:
        message = json.loads(body)
    except ValueError:
        return True
    return not isinstance(message, dict) or ("method" in message and "id" in message)


def _again(read: list[Message], receive: Receive) -> Receive:
    waiting = iter(read)

    async def next_message() -> Message:
        return next(waiting, None) or await receive()

    return next_message


class StrippedHeaders:
    """Header values without surrounding whitespace, as HTTP defines them; uvicorn's parser keeps it at the end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._app(scope, receive, send)


class UnusedSessions:
    """Ends sessions that were opened and never used, long before the idle timeout of used ones."""

    def __init__(self, app: ASGIApp, manager: StreamableHTTPSessionManager, seconds: float = _UNUSED) -> None:
        self._app = app
        self._manager = manager
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = MCP_SESSION_ID_HEADER.encode("ascii")
        if scope["type"] != "http" or any(name == header for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        opened = ""

        async def watched(message: Message) -> None:
            nonlocal opened
            if message["type"] == "http.response.start":
                opened = next((value.decode() for name, value in message["headers"] if name.lower() == header), "")
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if opened:
                end_unless_used(self._manager, opened, self._seconds)


def admitted_hosts(allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> TransportSecuritySettings:
    """The accepted Host and Origin headers: loopback's, and those in the settings."""
    return TransportSecuritySettings(
        allowed_hosts=[*_LOOPBACK_HOSTS, *allowed_hosts],
        allowed_origins=[
            *(f"http://{loopback}" for loopback in _LOOPBACK_HOSTS),
            *(f"{scheme}://{host}" for host in allowed_hosts for scheme in ("http", "https")),
            *allowed_origins,
        ],
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
