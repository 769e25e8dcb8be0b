"""The gateway over HTTP: `/mcp` for clients, what tells them which token they need, `/health` and `/ready` for
monitoring, and optional pages.

Host and Origin are checked on every MCP request, so a web page cannot reach a gateway on loopback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import JSONRPCRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_optimizer.access.callers.door import MCP_PATH, METADATA_PATH, Door
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.domain.addresses import is_loopback
from mcp_optimizer.domain.caller import Caller, Principal, Risk
from mcp_optimizer.domain.own_tools import CALLING, OWN_NAMES
from mcp_optimizer.errors import ConfigurationError, InvalidRequest
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.runtime.signatures import Signatures, new_owner
from mcp_optimizer.serving.gate import Gate
from mcp_optimizer.serving.http_gate import HttpGate, resource_of
from mcp_optimizer.serving.last_requests import LastCalls, LastRequests
from mcp_optimizer.serving.modern_clients import ModernClients
from mcp_optimizer.serving.modern_http import ModernHttp
from mcp_optimizer.serving.own_tools import text_in
from mcp_optimizer.serving.peers import Forwarding
from mcp_optimizer.serving.session_ids import EndedSessions
from mcp_optimizer.serving.sessions import Sessions

# Tells clients which token they need: describes the gateway (RFC 9728) and the scopes that a call needs. The
# description is open to every web page: Host is checked, because it is repeated there; Origin is not.

_FOR_PAGES = {"Access-Control-Allow-Origin": "*", "Cache-Control": "public, max-age=300"}
_PREFLIGHT = {
    **_FOR_PAGES,
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "MCP-Protocol-Version, Authorization",
    "Access-Control-Max-Age": "600",
}


def metadata_routes(door: Door, hosts: TransportSecuritySettings) -> list[Route]:
    """The well-known address for `/mcp`, and the one without a path, which some clients use."""
    check = TransportSecurityMiddleware(hosts.model_copy(update={"allowed_origins": []}))

    async def described(request: Request) -> Response:
        headers = [(name, value) for name, value in request.scope["headers"] if name != b"origin"]
        refusal = await check.validate_request(Request({**request.scope, "headers": headers}))
        if refusal is not None:
            return refusal
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_PREFLIGHT)
        return JSONResponse(door.metadata(resource_of(door, request)), headers=_FOR_PAGES)

    paths = (f"{METADATA_PATH}{MCP_PATH}", METADATA_PATH)
    return [Route(path, described, methods=["GET", "OPTIONS"]) for path in paths]


_LONGEST = 10_000
"""Maximum characters of a name that is looked up."""

ScopesFor = Callable[[Principal, Risk], Sequence[str]]


class StepUp:
    """The scopes that a call needs, by its tool's risk class; all other requests only read."""

    def __init__(self, gateway: Gateway, scopes_for: ScopesFor, *, transparent: bool) -> None:
        self._gateway = gateway
        self._scopes_for = scopes_for
        self._own: tuple[str, ...] = () if transparent else OWN_NAMES

    def __call__(self, caller: Caller, message: object) -> Sequence[str]:
        if not isinstance(message, JSONRPCRequest):
            return ()
        params = message.params
        is_call = message.method == "tools/call" and isinstance(params, Mapping)
        return self._scopes_for(caller.principal, self._risk(caller, params or {}) if is_call else Risk.READ)

    def _risk(self, caller: Caller, params: Mapping[str, Any]) -> Risk:
        name, server = params.get("name"), None
        if name in self._own:
            arguments = params.get("arguments")
            if name not in CALLING or not isinstance(arguments, Mapping):
                return Risk.READ
            try:
                name, server = (
                    text_in(arguments, key, _LONGEST, required=False, between=" ")
                    for key in ("tool_name", "server_name")
                )
            except InvalidRequest:
                return Risk.READ
        if not isinstance(name, str):
            return Risk.READ
        # If the class cannot be determined here, the check during the call itself still requires the scopes.
        return self._gateway.permissions.risk_of(self._gateway.snapshot, name, server or None, caller)


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
