"""python libraries.py LIBRARY FILE: one question to an agent made with a library, with the servers of a file.

Started by the suite, with the Python of an environment that has the library; so it imports nothing of ours, and each
library only where it is used. The model is where `OPENAI_BASE_URL` says.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

QUESTION = "What was sold today?"
MODEL = "gpt-4o"
_TURNS = 40
_SECONDS = 60
Servers = Mapping[str, dict[str, Any]]


async def openai_agents(servers: Servers) -> None:
    agents, mcp = import_module("agents"), import_module("agents.mcp")
    agents.set_tracing_disabled(True)
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                mcp.MCPServerStdio(params=entry, name=name, client_session_timeout_seconds=_SECONDS)
            )
            for name, entry in servers.items()
        ]
        model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=import_module("openai").AsyncOpenAI())
        agent = agents.Agent(name="clerk", model=model, mcp_servers=started)
        await agents.Runner.run(agent, QUESTION, max_turns=_TURNS)


async def langchain(servers: Servers) -> None:
    client = import_module("langchain_mcp_adapters.client").MultiServerMCPClient(
        {name: {**entry, "transport": "stdio"} for name, entry in servers.items()}
    )
    load = import_module("langchain_mcp_adapters.tools").load_mcp_tools
    async with AsyncExitStack() as stack:
        tools: list[Any] = []
        for name in servers:
            tools += await load(await stack.enter_async_context(client.session(name)))
        model = import_module("langchain_openai").ChatOpenAI(model=MODEL)
        agent = import_module("langgraph.prebuilt").create_react_agent(model, tools)
        await agent.ainvoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 2 * _TURNS})


async def pydantic_ai(servers: Servers) -> None:
    toolset = import_module("pydantic_ai.mcp").MCPToolset
    transport = import_module("fastmcp.client.transports").StdioTransport
    toolsets = [
        toolset(transport(entry["command"], entry["args"]), tool_error_behavior="failed", init_timeout=_SECONDS)
        for entry in servers.values()
    ]
    agent = import_module("pydantic_ai").Agent(f"openai-chat:{MODEL}", toolsets=toolsets)
    async with agent:
        await agent.run(QUESTION)


async def strands(servers: Servers) -> None:
    mcp, client = import_module("mcp"), import_module("strands.tools.mcp").MCPClient

    def connected(entry: dict[str, Any]) -> Any:
        return client(lambda: mcp.stdio_client(mcp.StdioServerParameters(**entry)))

    with ExitStack() as stack:
        started = [stack.enter_context(connected(entry)) for entry in servers.values()]
        tools = [tool for one in started for tool in one.list_tools_sync()]
        model = import_module("strands.models.openai").OpenAIModel(model_id=MODEL)
        import_module("strands").Agent(model=model, tools=tools)(QUESTION)


async def mcp_use(servers: Servers) -> None:
    used = import_module("mcp_use")
    client = used.MCPClient.from_dict({"mcpServers": dict(servers)})
    model = import_module("langchain_openai").ChatOpenAI(model=MODEL)
    await used.MCPAgent(llm=model, client=client, max_steps=_TURNS).run(QUESTION)


LIBRARIES: Mapping[str, Callable[[Servers], Coroutine[Any, Any, None]]] = {
    "openai-agents": openai_agents,
    "langchain-mcp-adapters": langchain,
    "pydantic-ai": pydantic_ai,
    "strands": strands,
    "mcp-use": mcp_use,
}

if __name__ == "__main__":
    os.environ.setdefault("OPENAI_API_KEY", "none")
    given = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))["mcpServers"]
    asyncio.run(LIBRARIES[sys.argv[1]](given))
