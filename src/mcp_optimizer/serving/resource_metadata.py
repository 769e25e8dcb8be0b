"""Describes the gateway to clients that need a token for it (RFC 9728). Anybody may read it, from any web page.

Host is checked, because the description repeats it; Origin is not, because there is nothing to keep from a page.
"""

from __future__ import annotations

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcp_optimizer.callers.door import MCP_PATH, METADATA_PATH, Door
from mcp_optimizer.serving.http_gate import resource_of

_FOR_PAGES = {"Access-Control-Allow-Origin": "*", "Cache-Control": "public, max-age=300"}
_PREFLIGHT = {
    **_FOR_PAGES,
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "MCP-Protocol-Version, Authorization",
    "Access-Control-Max-Age": "600",
}


def metadata_routes(door: Door, hosts: TransportSecuritySettings) -> list[Route]:
    """The well-known address for `/mcp`, and the one without a path, where some clients look."""
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
