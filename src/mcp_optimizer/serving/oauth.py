"""Tells clients which token they need: describes the gateway (RFC 9728) and the scopes that a call needs.

The description is open to every web page: Host is checked, because it is repeated there; Origin is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import JSONRPCRequest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcp_optimizer.access.callers.door import MCP_PATH, METADATA_PATH, Door
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import CALLING, OWN_NAMES
from mcp_optimizer.domain.principal import Principal, Risk
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.serving.http_gate import resource_of
from mcp_optimizer.serving.own_tools import text_in

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
