"""The gateway over HTTP: `/mcp` for clients, `/health` and `/ready` for monitoring, and pages if given.

Host and Origin are checked on every MCP request, so a web page cannot reach a gateway on loopback. A session that its
client never used is ended soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_optimizer.callers.door import Door
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.relay.head import fields_of
from mcp_optimizer.relay.sdk_internals import end_unless_used
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.ended_sessions import EndedSessions
from mcp_optimizer.serving.first_events import HeldFirstEvents
from mcp_optimizer.serving.forwarding import Forwarding
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.large_bodies import LargeBodies
from mcp_optimizer.serving.last_requests import LastCalls, LastRequests
from mcp_optimizer.serving.resource_metadata import metadata_routes
from mcp_optimizer.serving.sessions import Sessions

_LOOPBACK_HOSTS = ("127.0.0.1:*", "localhost:*", "[::1]:*")
_SESSION = MCP_SESSION_ID_HEADER.encode("ascii")
_REVISION = MCP_PROTOCOL_VERSION_HEADER.encode("ascii")
_MODERN = frozenset(revision.encode("ascii") for revision in MODERN_PROTOCOL_VERSIONS)
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
    requests: LastRequests | None = None,
    worker: str = "",
    gate: Gate | None = None,
    door: Door | None = None,
    signatures: Signatures | None = None,
    ended: EndedSessions | None = None,
    forwarding: Forwarding | None = None,
    routes: Sequence[Route] = (),
) -> ASGIApp:
    """The ASGI application; its lifespan runs the MCP sessions.

    `is_ready` says whether a tool can be found and called now. `requests` counts those in progress, and says when the
    stopping gateway takes no more. `worker` is this process among several at the same address. Without a `door`,
    everybody may call. `signatures` and `ended` are shared with the other gateways of an installation, which open each
    other's sessions; `forwarding` passes on to them what only one of them can answer.
    """
    if not is_loopback(host) and not allowed_hosts:
        raise ConfigurationError(
            f"Serving on {host} is reachable from other machines. If you want that, list the host names that "
            "clients may use in --allowed-hosts, such as 'gateway.internal:8765'."
        )

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "version": version, **({"worker": worker} if worker else {})})

    served = requests if requests is not None else LastRequests()

    async def ready(_request: Request) -> JSONResponse:
        served.watched()
        counts = Counter(state.status.value for state in catalog.snapshot.states.values())
        can_call = is_ready()
        state = "stopping" if served.is_leaving else "ready" if can_call else "waiting for servers"
        answer = {"ready": can_call, "state": state, "servers": dict(counts)}
        return JSONResponse(answer, status_code=200 if can_call else 503)

    hosts = admitted_hosts(allowed_hosts, allowed_origins)
    sessions = Sessions(
        server,
        gate=gate or Gate(),
        hosts=hosts,
        door=door,
        signatures=signatures,
        ended=ended,
        forwarding=forwarding,
    )
    served.count_sessions_with(lambda: len(sessions))
    described = metadata_routes(door, hosts) if door is not None and door.has_issuers else ()
    between = forwarding.routes() if forwarding is not None else ()
    server.middleware.insert(0, sessions.around)
    known = [Route("/health", health), Route("/ready", ready), *described, *between, *routes]
    # The last one keeps Starlette from sending others to a similar address, at whatever host they name.
    pages = Starlette(
        routes=[*known, Route("/{path:path}", _nowhere)], lifespan=lambda _app: _running(sessions, forwarding)
    )
    mcp = sessions.asgi_app
    # Only legacy requests open sessions, and streams that begin with an empty event.
    legacy = HeldFirstEvents(LargeBodies(UnusedSessions(mcp, sessions)))
    return LastCalls(HttpEntrance(pages, modern=LargeBodies(mcp), legacy=legacy), served)


@asynccontextmanager
async def _running(sessions: Sessions, forwarding: Forwarding | None) -> AsyncIterator[None]:
    async with sessions.run():
        try:
            yield
        finally:
            if forwarding is not None:
                await forwarding.close()


async def _nowhere(_request: Request) -> Response:
    return PlainTextResponse("Not Found", status_code=404)


class HttpEntrance:
    """Where every request comes in. Header values lose the blanks around them, which are not theirs and which uvicorn's
    parser keeps at the end. Requests to `/mcp` pass by Starlette, which would cost each of them a tenth of its time.
    """

    def __init__(self, pages: Starlette, *, modern: ASGIApp, legacy: ASGIApp) -> None:
        self.pages = pages
        self._modern = modern
        self._legacy = legacy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self.pages(scope, receive, send)
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        if scope["path"] != "/mcp":
            return self.pages(scope, receive, send)
        is_modern = fields_of(scope).get(_REVISION) in _MODERN
        return (self._modern if is_modern else self._legacy)(scope, receive, send)


class UnusedSessions:
    """Ends sessions that were opened and never used, long before the idle timeout of used ones."""

    def __init__(self, app: ASGIApp, manager: StreamableHTTPSessionManager, seconds: float = _UNUSED) -> None:
        self._app = app
        self._manager = manager
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _SESSION in fields_of(scope):
            # It names one that is open.
            await self._app(scope, receive, send)
            return
        opened = ""

        async def watched(message: Message) -> None:
            nonlocal opened
            if message["type"] == "http.response.start":
                opened = next((value.decode() for name, value in message["headers"] if name.lower() == _SESSION), "")
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
