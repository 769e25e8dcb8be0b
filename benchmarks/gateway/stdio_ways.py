"""A call over stdio, directly and through gateways, beside two others.

    python -m benchmarks.gateway.stdio_ways [--against FOLDER] [--peers FOLDER] [--era legacy] [--rounds 12]

The SDK's client calls the echo of these benchmarks. All ways are open at the same time and take turns in short rounds,
so that other load affects them alike. `--against` is another checkout of ours, `--peers` the `bin` folder of an
environment with `mcp-compressor` and `lazy-mcp`; both speak only legacy, to the client and to the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks.gateway.ways import ECHO_BLOB, ECHO_CALL, FOUND_CALL, Way
from benchmarks.paths import ECHO_SERVER, alone
from benchmarks.processes import children, processor_seconds

ROOT = Path(__file__).parents[2]
_TEXT = ECHO_CALL["arguments"]
_COMPRESSOR = {"name": "server_invoke_tool", "arguments": {"tool_name": "echo", "tool_input": _TEXT}}
_LAZY = {"name": "invoke_command", "arguments": {"server": "echo", "command_name": "echo", "parameters": _TEXT}}


async def open_way(
    stack: AsyncExitStack, name: str, command: list[str], call: Any, era: str, checkout: Path | None = None
) -> Way:
    before = set(children(os.getpid()))
    environment = dict(os.environ)
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout / "src")
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    client = await stack.enter_async_context(Client(parameters, cache=None, mode=era))
    return Way(name, client, call, ECHO_BLOB, next(iter(set(children(os.getpid())) - before), 0))


async def open_ways(
    stack: AsyncExitStack, folder: Path, against: Path | None, peers: Path | None, era: str
) -> list[Way]:
    echo = [sys.executable, str(ECHO_SERVER)]
    ways = [await open_way(stack, "direct", echo, ECHO_CALL, era)]
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"echo": {"command": echo[0], "args": echo[1:]}}}), encoding="utf-8")
    for checkout in [ROOT, *([against] if against else [])]:
        for mode, call in (("search", FOUND_CALL), ("transparent", ECHO_CALL)):
            name = f"{checkout.name}, {mode}"
            options = ["--mode", mode, "--database", str(folder / f"{name}.db"), "--max-rows", "0", "--max-tokens", "0"]
            options += ["--config", str(config), *alone(checkout)]
            command = [sys.executable, "-m", "mcp_optimizer", "serve", *options]
            ways.append(await open_way(stack, name, command, call, era, checkout))
    if peers:
        servers = folder / "servers.json"
        entry = {"name": "echo", "description": "echo", "command": echo}
        servers.write_text(json.dumps({"servers": [entry]}), encoding="utf-8")
        compressor = [str(peers / "mcp-compressor"), "--", *echo]
        ways.append(await open_way(stack, "mcp-compressor", compressor, _COMPRESSOR, "legacy"))
        lazy = [str(peers / "lazy-mcp"), "--config", str(servers)]
        ways.append(await open_way(stack, "lazy-mcp", lazy, _LAZY, "legacy"))
    for way in ways:
        await way.until_ready()
    return ways


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--era", default="auto", help="auto (modern, where the server is) or legacy")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            ways = await open_ways(stack, Path(folder), options.against, options.peers, options.era)
            used = await measure(ways, options.rounds, options.calls)
    print(f"| way ({options.era}) | p50 ms | x direct | processor, ms a call |\n|---|---|---|---|")
    direct = statistics.median(ways[0].seconds)
    for way in ways:
        p50 = statistics.median(way.seconds)
        print(f"| {way.name} | {1_000 * p50:.2f} | {p50 / direct:.2f} | {1_000 * used[way.name]:.2f} |")


async def measure(ways: list[Way], rounds: int, calls: int) -> dict[str, float]:
    """Processor seconds of each way's process for a call; the times on the clock are left with the ways."""
    used = dict.fromkeys([way.name for way in ways], 0.0)
    for way in ways:
        for _ in range(20):
            await way.one()
        way.seconds.clear()
    for _ in range(rounds):
        for way in ways:
            before = processor_seconds(way.pid)
            for _ in range(calls):
                await way.one()
            used[way.name] += (processor_seconds(way.pid) - before) / (rounds * calls)
    return used


if __name__ == "__main__":
    asyncio.run(main())
