"""A server that responds at once, on the SDK's low-level server, so that only the way to it is measured.

Started by `gateway` and `many_clients`: python echo_server.py [PORT [legacy]], on stdio, or over HTTP at /mcp. `echo`
returns its text, `blob` returns that many bytes, `rows` that many objects as JSON, `lines` that many lines of text, and
`both` that many objects as JSON and as structured content. With `legacy`, it refuses modern requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
BLOB = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
ROWS = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


_TITLES = ("Paint the fence", "Order bread for Friday", "Call the harbour office")


@cache
def objects(count: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "title": f"{_TITLES[n % 3]} {n}", "state": "open", "assignee": f"user-{n % 50}"} for n in range(count)
    ]


@cache
def rows(count: int) -> str:
    return json.dumps(objects(count))


@cache
def lines(count: int) -> str:
    return "".join(f"{n}: {_TITLES[n % 3]}, for user-{n % 50}\n" for n in range(count))


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name="echo", description="Give a text back", input_schema=ECHO),
        types.Tool(name="blob", description="Return so many bytes", input_schema=BLOB),
        types.Tool(name="rows", description="Return so many objects", input_schema=ROWS),
        types.Tool(name="lines", description="Return so many lines", input_schema=ROWS),
        types.Tool(name="both", description="Return so many objects, twice", input_schema=ROWS),
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    structured = None
    if params.name in ("rows", "both"):
        text = rows(arguments["count"])
        structured = {"items": objects(arguments["count"])} if params.name == "both" else None
    elif params.name == "lines":
        text = lines(arguments["count"])
    else:
        text = arguments["text"] if params.name == "echo" else "0123456789abcdef" * (arguments["size"] // 16)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured)


def _legacy(app: Any) -> Any:
    """The same app, which refuses requests of a modern version."""
    modern = {version.encode() for version in MODERN_PROTOCOL_VERSIONS}

    async def legacy(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-protocol-version") not in modern:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body"})

    return legacy


def main() -> None:
    server: Server[Any] = Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    if len(sys.argv) > 1:
        app: Any = server.streamable_http_app()
        uvicorn.run(_legacy(app) if sys.argv[2:] else app, port=int(sys.argv[1]), log_level="critical")
        return

    async def serve() -> None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    asyncio.run(serve())


if __name__ == "__main__":
    main()
