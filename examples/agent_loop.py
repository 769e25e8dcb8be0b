"""An agent that uses the gateway as any MCP client does: over stdio, with the official SDK.

    python examples/agent_loop.py

The "model" here is a script, so that the example needs no key. To use a real one, give its provider `tools` as they
are listed below, and run the calls that it asks for: nothing else changes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

TASK = "Which products does the shop sell?"
SQL = "SELECT name FROM products LIMIT 3"

Call = tuple[str, dict[str, Any]]


def scripted_model(replies: list[Any]) -> Call | str:
    """What the model does next, from what it was answered so far: a tool call, or its last word."""
    if not replies or replies[-1].get("tools") == []:
        # It knows four small tools. It looks for one that fits the task. The gateway answers at once, also while its
        # servers still start: a note says which of them were not searched, and so the model looks again.
        asked = {"tool_description": "run a SELECT query on the shop database", "limit": 3}
        return "find_tool", {**asked, "detail": "schema"}  # as JSON, which a script reads; models leave it out
    if "tools" in replies[-1]:
        # It reads the parameters of the first one, and calls it.
        name = replies[-1]["tools"][0]["name"]
        return "call_tool", {"tool_name": name, "parameters": {"queryDescription": SQL}}
    return f"The shop sells, among others: {json.dumps(replies[-1]['data'])}"


async def main() -> None:
    # A client's configuration would say the same: {"command": "mcp-optimizer", "args": ["serve", "--demo"]}
    arguments = ["-m", "mcp_optimizer", "serve", "--demo", "--database", "none"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        tools = (await client.list_tools()).tools
        print(f"Task: {TASK}\nThe prompt carries {len(tools)} tools: {', '.join(tool.name for tool in tools)}")
        replies: list[Any] = []
        while not isinstance(step := scripted_model(replies), str):
            name, parameters = step
            print(f"-> {name} {json.dumps(parameters)}")
            result = await client.call_tool(name, parameters)
            assert isinstance(result.content[0], TextContent)
            # A real model reads the text as it is; a failed call is an answer, too, and it tries again.
            replies.append(json.loads(result.content[0].text))
            await asyncio.sleep(1)  # a real model takes longer to think
        print(step)


if __name__ == "__main__":
    asyncio.run(main())
