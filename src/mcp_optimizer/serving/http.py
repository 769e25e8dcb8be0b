"""The gateway over HTTP: `/mcp` for clients, `/health` and `/ready` for monitoring, and optional pages.

Host and Origin are checked on every MCP request, so a web page cannot reach a gateway on loopback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_optimizer.access.callers.door import Door
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.signatures import Signatures, new_owner
from mcp_optimizer.serving.ended_sessions import EndedSessions
from mcp_optimizer.serving.forwarding import Forwarding
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http_gate import HttpGate
from mcp_optimizer.serving.last_requests import LastCalls, LastRequests
from mcp_optimizer.serving.modern_clients import ModernClients
from mcp_optimizer.serving.modern_http import ModernHttp
from mcp_optimizer.serving.oauth import metadata_routes
from mcp_optimizer.serving.sessions import Sessions

_LOOPBACK_HOSTS = ("127.0.0.1:*", "localhost:*", "[::1]:*")


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
    stopping gateway takes no more. `worker` is this process among several at the same address. Without a `door`, every
    caller is admitted. `signatures` and `ended` are shared with the other gateways of an installation, which can open
    each other's sessions; `forwarding` passes on requests that only one of them can answer.
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
    mcp = McpEndpoint(server, gate or Gate(), hosts, door, signatures, ended, forwarding)
    served.count_sessions_with(lambda: len(mcp.sessions))
    described = metadata_routes(door, hosts) if door is not None and door.has_issuers else ()
    between = forwarding.routes() if forwarding is not None else ()
    known = [Route("/health", health), Route("/ready", ready), *described, *between, *routes]
    # The last route keeps Starlette from redirecting other requests to a similar address at whatever host they name.
    pages = Starlette(routes=[*known, Route("/{path:path}", _nowhere)], lifespan=lambda _app: mcp.run())
    return LastCalls(HttpEntrance(pages, mcp.app), served)


class McpEndpoint:
    """`/mcp`: the gate, and behind it both eras."""

    def __init__(
        self,
        server: Server[Any],
        gate: Gate,
        hosts: TransportSecuritySettings,
        door: Door | None = None,
        signatures: Signatures | None = None,
        ended: EndedSessions | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        mark = forwarding.own if forwarding is not None else new_owner()
        self.sessions = Sessions(server, gate.limits, signatures, ended, mark)
        self._server = server
        self._modern = ModernHttp()
        self._forwarding = forwarding
        self.app: ASGIApp = HttpGate(self.sessions, self._modern, gate, hosts, door, forwarding)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Requests are answered within this block."""
        async with self._server.lifespan(self._server) as lifespan:
            self._modern.serve(ModernClients(self._server, lifespan))
            self.sessions.start(lifespan)
            try:
                yield
            finally:
                if self._forwarding is not None:
                    await self._forwarding.close()
                await self.sessions.close()


async def _nowhere(_request: Request) -> Response:
    return PlainTextResponse("Not Found", status_code=404)


class HttpEntrance:
    """The entrance for all requests. Strips the whitespace around header values, which is not part of them but which
    uvicorn's parser keeps at the end. Requests to `/mcp` bypass Starlette, which would take a tenth of their time.
    """

    def __init__(self, pages: Starlette, mcp: ASGIApp) -> None:
        self.pages = pages
        self._mcp = mcp

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self.pages(scope, receive, send)
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        return (self._mcp if scope["path"] == "/mcp" else self.pages)(scope, receive, send)


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
