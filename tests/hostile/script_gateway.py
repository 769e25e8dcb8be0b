"""A gateway over HTTP that takes only keys and runs scripts, for tests of callers who share it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.domain.caller import Risk
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import ACCEPT, MODERN, message
from tests.e2e.running import COMMAND
from tests.e2e.test_relay import Person
from tests.waiting import until

VAULT = Path(__file__).parents[1] / "servers" / "vault.py"
RULES = '[[rules]]\neffect = "deny"\ntool = "log_vault"\n'


class Gateway:
    """A gateway over HTTP, and three callers: ada may do everything, bob reads one server, carl runs stored scripts."""

    def __init__(self, folder: Path) -> None:
        entries = {name: {"command": sys.executable, "args": [str(VAULT), name]} for name in ("vault", "attic")}
        config, rules, peek = folder / "mcp.json", folder / "rules.toml", folder / "peek.py"
        config.write_text(json.dumps({"mcpServers": entries}))
        rules.write_text(RULES)
        peek.write_text("attic.read_attic(text=str(what))")
        database = str(folder / "catalog.db")
        self.env = {**os.environ, "MCP_OPTIMIZER_DATABASE": database, "MCP_OPTIMIZER_ENCODER": "none"}
        os.environ["MCP_OPTIMIZER_DATABASE"] = database
        try:
            wanted = {
                "ada": made_key("ada", Risk.DESTRUCTIVE),
                "bob": made_key("bob", Risk.READ, ("vault",)),
                "carl": made_key("carl", Risk.READ, ("vault", "scripts")),
            }
            self.keys = {name: asyncio.run(making) for name, making in wanted.items()}
        finally:
            del os.environ["MCP_OPTIMIZER_DATABASE"]
        given = ["--config", str(config), "--settings", str(rules), "--scripts", "write"]
        saved = ["script", "save", "peek", str(peek), "--description", "Peek", "--param", "what:any", *given]
        subprocess.run([*COMMAND, *saved], env=self.env, check=True, capture_output=True, timeout=60)
        serve = [*COMMAND, "serve", *given, "--http", "127.0.0.1:0", "--require-auth", "--max-tokens", "300"]
        self.process = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, env=self.env)
        assert self.process.stderr is not None
        found = next(found for line in self.process.stderr if (found := re.search(r"http://\S+/mcp", line)))
        self.address = found.group()

    async def answers(self) -> bool:
        """Whether its database is open, and its servers are up."""
        return "tried" in await self.post("bob", "run_script", {"script": "vault.read_vault()\nprint('tried')"})

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)

    def workers(self) -> list[int]:
        """The processes in which scripts run or are checked."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and "monty" in (place / "cmdline").read_text():
                    found.append(int(place.name))
        return found

    @asynccontextmanager
    async def client(self, who: str, query: str = "", **more: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(self.address + query, http_client=http)
            async with Client(transport, mode="auto", **Person().callbacks(), **more) as client:
                await until(lambda: _is_up(client), timeout=30)
                yield client

    async def post(self, who: str, tool: str, arguments: dict[str, Any], timeout: float = 60) -> str:
        """One request on a connection of its own; what came back."""
        name, headers = "tools/call", {**ACCEPT, "Authorization": f"Bearer {self.keys[who]}"}
        headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": name, "Mcp-Name": tool}
        body = message(name, {"name": tool, "arguments": arguments}, era=MODERN)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
            return (await http.post(self.address, content=json.dumps(body))).text


async def _is_up(client: Client) -> bool:
    return "read_vault" in text(await client.call_tool("list_tools", {}))


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def run(client: Client, script: str, **more: Any) -> types.CallToolResult:
    return await client.call_tool("run_script", {"script": script, **more})
