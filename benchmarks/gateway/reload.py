"""Whether calls to a server wait while others are edited in the server file.

    python -m benchmarks.gateway.reload [--edits 100] [--rate 40]

One gateway over HTTP, and one call every few milliseconds to a server that stays as it is, whether or not the call
before was answered. In turns of ten edits: nothing else happens; the same processes are started and ended beside the
gateway, which costs the machine the same; the server file is edited, so that the gateway starts and ends them. What
counts is the third against the second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.clients import PlainClient
from benchmarks.paths import PLAIN_SERVER
from benchmarks.processes import free_port, process

CALL = {"name": "call_tool", "arguments": {"tool_name": "steady__echo", "parameters": {"value": "x"}}}
PAUSE = 1.6
"""Seconds between edits: the gateway notices one within about a second."""
TURN = 10


def plain(name: str, tools: int) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(PLAIN_SERVER), name, "--tools", str(tools)]}


def write(config: Path, servers: dict[str, Any]) -> None:
    new = config.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": {**servers, "steady": plain("steady", 3)}}))
    new.replace(config)


async def nothing(_number: int) -> None:
    await asyncio.sleep(PAUSE)


def editing(config: Path) -> Callable[[int], Awaitable[None]]:
    async def edit(number: int) -> None:
        # A server that changes, and one that comes with every other edit and goes with the next.
        others = {"busy": plain("busy", 3 + number % 5)} | ({"new": plain("new", 3)} if number % 2 else {})
        write(config, others)
        await asyncio.sleep(PAUSE)

    return edit


async def beside(number: int) -> None:
    """The processes that such an edit starts, spoken to as the gateway does, and ended."""
    names = ["busy", "new"] if number % 2 else ["busy"]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "beside", "version": "1"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    pipe = asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(PLAIN_SERVER), name, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        for name in names
    ]
    for child in started:
        assert child.stdin is not None
        child.stdin.write(message + b"\n")
    await asyncio.sleep(PAUSE)
    for child in started:
        child.kill()
        await child.communicate()


class Caller:
    """Calls at a fixed rate, and notes how long each call took and which failed."""

    def __init__(self, client: PlainClient, rate: float) -> None:
        self._client = client
        self._rate = rate
        self.failed = 0

    async def during(self, deed: Callable[[int], Awaitable[None]], numbers: range) -> list[float]:
        taken: list[float] = []
        doing = asyncio.create_task(self._all(deed, numbers))
        async with asyncio.TaskGroup() as calls:
            while not doing.done():
                calls.create_task(self._call(taken))
                await asyncio.sleep(1 / self._rate)
        await doing
        return taken

    async def _all(self, deed: Callable[[int], Awaitable[None]], numbers: range) -> None:
        for number in numbers:
            await deed(number)

    async def _call(self, taken: list[float]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = await self._client.request(1, "tools/call", CALL)
        taken.append(loop.time() - started)
        self.failed += bool(answer.get("error") or answer["result"].get("isError"))


async def measure(edits: int, rate: float) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config, port = folder / "mcp.json", free_port()
        write(config, {})
        command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(config), "--database", "none"]
        await stack.enter_async_context(
            process(*command, "--encoder", "none", "--http", f"127.0.0.1:{port}", port=port)
        )
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60, trust_env=False))
        client = PlainClient(http, f"http://127.0.0.1:{port}/mcp", is_modern=True)
        await client.connect()
        async with asyncio.timeout(60):
            while (await client.request(1, "tools/call", CALL))["result"].get("isError"):
                await asyncio.sleep(0.1)
        deeds = {"nothing": nothing, "the same processes beside": beside, "edits": editing(config)}
        taken: dict[str, list[float]] = {name: [] for name in deeds}
        caller = Caller(client, rate)
        for first in range(0, edits, TURN):
            for name, deed in deeds.items():
                taken[name] += await caller.during(deed, range(first, min(first + TURN, edits)))
            write(config, {})
            await asyncio.sleep(2 * PAUSE)
    show(taken, caller.failed)


def show(taken: dict[str, list[float]], failed: int) -> None:
    print(f"{'':28}{'calls':>8}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}")
    for name, seconds in taken.items():
        ordered = sorted(second * 1_000 for second in seconds)
        middle, late = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        print(f"{name:28}{len(ordered):>8,}{middle:>9.1f}{late:>9.1f}{ordered[-1]:>9.1f}")
    print(f"{failed} calls failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--rate", type=float, default=40, help="calls a second")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("MCP_OPTIMIZER_")]:
        del os.environ[name]
    asyncio.run(measure(options.edits, options.rate))


if __name__ == "__main__":
    main()
