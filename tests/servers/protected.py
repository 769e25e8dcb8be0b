"""An MCP server over streamable HTTP that needs a token of `authorization_server.py` for exactly its own address.

python -m tests.servers.protected --port P --issuer http://localhost:Q

Prints its address once it listens (port 0: any free one). Without a good token it answers 401; every call needs the
scope `mcp:read`, and `write_note` also `mcp:write`: without it the answer to that call is 403.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from typing import Any

import httpx2
import mcp_types as types
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

READ, WRITE = "mcp:read", "mcp:write"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
TOOLS = [
    types.Tool(name="whoami", description="The client and the scopes of the token", input_schema={"type": "object"}),
    types.Tool(name="slow", description="Wait half a second", input_schema={"type": "object"}),
    types.Tool(name="write_note", description="Write a note", input_schema={"type": "object"}),
]


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "slow":
        await asyncio.sleep(0.5)
    token: AccessToken = context.request.user.access_token
    told = {"tool": params.name, "client_id": token.client_id, "scopes": token.scopes}
    return types.CallToolResult(content=[types.TextContent(text=json.dumps(told))])


class Introspection:
    """Asks the authorization server about each token, so that expiry and revocation show at once."""

    def __init__(self, issuer: str, resource: str) -> None:
        self._issuer, self._resource = issuer, resource
        self._http = httpx2.AsyncClient(trust_env=False)

    async def verify_token(self, token: str) -> AccessToken | None:
        response = await self._http.post(f"{self._issuer}/introspect", data={"token": token})
        said = response.raise_for_status().json()
        if not said["active"] or said["iss"] != self._issuer or said["aud"] != self._resource:
            return None
        scopes = said["scope"].split()
        claims = {"iss": said["iss"]}
        return AccessToken(token=token, client_id=said["client_id"], scopes=scopes, subject=said["sub"], claims=claims)


class NeedsScopes:
    """Lets a request through whose token has the scopes for it, else says in a challenge what is missing."""

    def __init__(self, app: ASGIApp, path: str, metadata: str) -> None:
        self._app, self._path, self._metadata = app, path, metadata

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        if not isinstance(request.user, AuthenticatedUser):
            sent = 'error="invalid_token", ' if "Authorization" in request.headers else ""
            await self._refuse(401, f'{sent}scope="{READ}"')(scope, receive, send)
        elif missing := next((name for name in needed(body) if name not in request.user.scopes), None):
            await self._refuse(403, f'error="insufficient_scope", scope="{missing}"')(scope, receive, send)
        else:
            await self._app(scope, again(body, receive), send)

    def _refuse(self, status: int, why: str) -> JSONResponse:
        challenge = f'Bearer resource_metadata="{self._metadata}", {why}'
        return JSONResponse({"error": status}, status, {"WWW-Authenticate": challenge})


def needed(body: bytes) -> list[str]:
    """The scopes that a message needs."""
    message = json.loads(body) if body else {}
    writes = message.get("method") == "tools/call" and message["params"]["name"] == "write_note"
    return [READ, WRITE] if writes else [READ]


def again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read before, then what follows it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return messages.pop() if messages else await receive()

    return received


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--issuer", required=True)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    origin = f"http://localhost:{listening.getsockname()[1]}"
    resource, metadata = f"{origin}/mcp", f"{WELL_KNOWN}/mcp"
    described = {"resource": resource, "authorization_servers": [options.issuer], "scopes_supported": [READ, WRITE]}

    async def well_known(_request: Request) -> JSONResponse:
        return JSONResponse({**described, "bearer_methods_supported": ["header"]})

    server: Server[Any] = Server("protected", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    app = server.streamable_http_app(custom_starlette_routes=[Route(metadata, well_known)])
    guarded = NeedsScopes(app, "/mcp", origin + metadata)
    backend = BearerAuthBackend(Introspection(options.issuer, resource))
    print(resource, flush=True)
    config = uvicorn.Config(AuthenticationMiddleware(guarded, backend=backend), log_level="critical")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
