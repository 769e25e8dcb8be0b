"""Starts the real command line as a user or a client would: over stdio, over HTTP, and as one-shot commands.

Most processes are forks of one that has imported everything (`tests/warm`), because imports take most of their time.
Tests that look at a process itself (its memory, its children, its end) start it with COMMAND.
"""

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
from typing import Any, Protocol, TextIO
from urllib.parse import urlsplit

import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client

from mcp_optimizer_demo import demo_server_commands
from tests.warm import WARM_PYTHON

COMMAND = [sys.executable, "-m", "mcp_optimizer"]
WARM = [*WARM_PYTHON, "-m", "mcp_optimizer"]
WARM_DEMO = {name: [*WARM_PYTHON, *arguments] for name, (_, *arguments) in demo_server_commands().items()}
"""How the demo servers are started, by name. Each has more to import than to do."""


def demo_entry(name: str) -> dict[str, Any]:
    """An entry of a server file that starts this demo server."""
    program, *arguments = WARM_DEMO[name]
    return {"command": program, "args": arguments}


@dataclass(frozen=True)
class Finished:
    """A command that ran to its end."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def command(
    *arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None, cold: bool = False
) -> Finished:
    """`cold`: with its imports, of which each command has its own."""
    process = await asyncio.create_subprocess_exec(
        *(COMMAND if cold else WARM),
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Finished(process.returncode or 0, out.decode(), err.decode())


async def entrance(config: Path) -> str:
    """The address that lets one browser in as the owner of the gateway that runs with these servers."""
    done = await command("dashboard", "--config", config, "--no-browser")
    assert done.code == 0, done.err
    return done.out.strip()


def sent_to(link: str) -> tuple[str, dict[str, str]]:
    """The same for a program that does not know that names under `.localhost` lead to this machine, as browsers do."""
    parts = urlsplit(link)
    return parts._replace(netloc=f"127.0.0.1:{parts.port}").geturl(), {"Host": parts.netloc}


def gateway_on_stdio(config: Path, *options: object) -> StdioServerParameters:
    """How a client starts a gateway."""
    arguments = [*WARM[1:], "serve", "--config", str(config), *map(str, options)]
    ours = ("XDG_", "MCP_OPTIMIZER_", "PYTHONPATH")
    passed = {name: value for name, value in os.environ.items() if name.startswith(ours)}
    return StdioServerParameters(command=WARM[0], args=arguments, env=passed)


def over_stdio(config: Path, *options: object, mode: str = "auto", log: TextIO | None = None) -> Client:
    """A client of a gateway on stdio. The gateway's stderr goes to `log`, if given."""
    started = gateway_on_stdio(config, *options)
    return Client(started if log is None else stdio_client(started, errlog=log), mode=mode)


@asynccontextmanager
async def gateway_at(config: Path, *options: object) -> AsyncIterator[str]:
    """The address of a gateway on a free port."""
    async with _listening(WARM, config, *options) as (address, _):
        yield address


@asynccontextmanager
async def http_gateway(
    config: Path, *options: object, cold: bool = False
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A gateway on a free port: its address and its process. `cold`: for tests of its memory or its children."""
    async with _listening(COMMAND if cold else WARM, config, *options) as started:
        yield started


@asynccontextmanager
async def _listening(
    program: list[str], config: Path, *options: object
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        *program,
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
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            assert line, "the gateway ended before it listened"
            found = re.search(r"http://\S+/mcp", line)
            address = found.group() if found else ""
        said: list[bytes] = []
        drain = asyncio.create_task(_drained(process.stderr, said))
        try:
            yield address, process
        except Exception:
            # Whoever looks at a test that failed wants to know what the gateway said.
            print(b"".join(said).decode(errors="replace"), file=sys.stderr)
            raise
        finally:
            drain.cancel()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 20)


async def _drained(stream: asyncio.StreamReader, into: list[bytes]) -> None:
    while chunk := await stream.read(65_536):
        into.append(chunk)


def said_in(result: types.CallToolResult) -> dict[str, Any]:
    """What a result of ours says to a program: its text is JSON."""
    [block] = result.content
    assert isinstance(block, types.TextContent)
    said: dict[str, Any] = json.loads(block.text)
    return said


class Asks(Protocol):
    """A client, or what stands for one."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any: ...


async def until_found(client: Asks, query: str, name: str, seconds: float = 15) -> dict[str, Any]:
    """Call find_tool until it returns the tool, as a model does while a server is still starting."""
    async with asyncio.timeout(seconds):
        while True:
            asked = {"tool_description": query, "limit": 50, "detail": "schema"}
            answer = said_in(await client.call_tool("find_tool", asked))
            if any(tool["name"] == name for tool in answer.get("tools", [])):
                return answer
            await asyncio.sleep(0.02)
