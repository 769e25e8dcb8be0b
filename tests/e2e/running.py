"""Starts the real command line as a user or a client would: over stdio, over HTTP, and as one-shot commands."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mcp import Client, StdioServerParameters, stdio_client

COMMAND = [sys.executable, "-m", "mcp_optimizer"]


@dataclass(frozen=True)
class Finished:
    """A command that ran to its end."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def command(*arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Finished(process.returncode or 0, out.decode(), err.decode())


def gateway_on_stdio(config: Path, *options: object) -> StdioServerParameters:
    """How a client starts a gateway."""
    arguments = [*COMMAND[1:], "serve", "--config", str(config), *map(str, options)]
    ours = ("XDG_", "MCP_OPTIMIZER_", "PYTHONPATH")
    passed = {name: value for name, value in os.environ.items() if name.startswith(ours)}
    return StdioServerParameters(command=COMMAND[0], args=arguments, env=passed)


def over_stdio(config: Path, *options: object, mode: str = "auto", log: TextIO | None = None) -> Client:
    """A client of a gateway on stdio. The gateway's stderr goes to `log`, if given."""
    started = gateway_on_stdio(config, *options)
    return Client(started if log is None else stdio_client(started, errlog=log), mode=mode)


@asynccontextmanager
async def http_gateway(config: Path, *options: object) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A gateway on a free port: its address and its process."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--config",
        str(config),
        "--http",
        "127.0.0.1:0",
        *map(str, options),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        address = ""
        while not address:
            line = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
            assert line, "the gateway ended before it listened"
            found = re.search(r"http://\S+/mcp", line)
            address = found.group() if found else ""
        drain = asyncio.create_task(process.stderr.read())
        yield address, process
        drain.cancel()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 20)


async def until_found(client: Client, query: str, name: str, seconds: float = 15) -> dict[str, Any]:
    """Call find_tool until it returns the tool, as a model does while a server is still starting."""
    async with asyncio.timeout(seconds):
        while True:
            result = await client.call_tool("find_tool", {"tool_description": query, "limit": 50})
            answer = result.structured_content or {}
            if any(tool["name"] == name for tool in answer.get("tools", [])):
                return answer
            await asyncio.sleep(0.02)
