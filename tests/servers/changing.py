"""An MCP server whose tools are those of a file, on stdio or over streamable HTTP. Its tool `relist` says they changed.

python changing.py FILE [PORT]. The file holds the entries of tools/list, as JSON; it is read at every listing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

FILE = Path(sys.argv[1])
BUS = InMemorySubscriptionBus()


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return types.ListToolsResult(tools=[types.Tool.model_validate(entry) for entry in entries])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "relist":
        await BUS.publish(ToolsListChanged())
        await context.session.send_tool_list_changed()
    return types.CallToolResult(content=[types.TextContent(text=f"called {params.name}")])


async def on_stdio(server: Server[Any]) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


def main() -> None:
    server: Server[Any] = Server(
        "changing",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(BUS),
    )
    if len(sys.argv) > 2:
        uvicorn.run(server.streamable_http_app(), port=int(sys.argv[2]), log_level="critical")
    else:
        anyio.run(on_stdio, server)


if __name__ == "__main__":
    main()
