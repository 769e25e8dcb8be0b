"""An MCP server over HTTP, built on the SDK: streamable HTTP at /mcp, the SSE transport at /sse.

python http_server.py PORT: every request must carry `X-Key: secret`, or it gets 401.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

TOOLS = [
    types.Tool(name="whoami", description="Tell how this server was reached", input_schema={"type": "object"}),
    types.Tool(name="die", description="End the process", input_schema={"type": "object"}),
]


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "die":
        os._exit(3)
    return types.CallToolResult(content=[types.TextContent(text=f"over {context.protocol_version}")])


class NeedsKey:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"x-key") != b"secret":
            await Response("who are you?", status_code=401)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def main() -> None:
    server: Server[Any] = Server("over-http", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    sse = SseServerTransport("/messages/")

    async def serve_sse(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
        return Response()

    app = server.streamable_http_app(custom_starlette_routes=[Route("/sse", serve_sse)])
    app.router.routes.append(Mount("/messages/", app=sse.handle_post_message))
    uvicorn.run(NeedsKey(app), port=int(sys.argv[1]), log_level="critical")


if __name__ == "__main__":
    main()
