"""The soak's server: logs every call before executing it, so that none can happen twice unnoticed.

Started by `soak`: python server.py LOG [PORT], on stdio, or over HTTP. `echo` returns its id, `wait` returns it after a
second.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    names = ("echo", "wait")
    return types.ListToolsResult(tools=[types.Tool(name=name, description=name, input_schema=SCHEMA) for name in names])


async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    number = str((params.arguments or {})["id"])
    os.write(LOG, f"{number}\n".encode())
    if params.name == "wait":
        await asyncio.sleep(1)
    return types.CallToolResult(content=[types.TextContent(text=f"{number} {'x' * 1_000}")])


def main() -> None:
    server: Server[Any] = Server("soak", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    if len(sys.argv) > 2:
        uvicorn.run(server.streamable_http_app(), port=int(sys.argv[2]), log_level="critical")
        return

    async def serve() -> None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    asyncio.run(serve())


if __name__ == "__main__":
    main()
