"""What a call in a script costs, against the same call by a client and in the process.

    python -m benchmarks.gateway.script_speed [--rounds N] [--write]

100 calls of one tool each way, in turns and in one run, so that a busy machine slows all of them down: by an MCP client
through a gateway on stdio, by a script that the same client runs there, by `gateway.call` in this process, and by a
script in this process. The demo server's tool takes about as long as a fast real one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from mcp import Client, StdioServerParameters

from benchmarks.paths import RESULTS
from mcp_optimizer import Optimizer
from mcp_optimizer_demo import demo_server_commands

RESULT = RESULTS / "script_speed.md"
CALLS = 100
EMPTY = 20
SCRIPT = f"for _ in range({CALLS}): kanban.list_tags()"
AT_ONCE = f"len(parallel('kanban.list_tags', [{{}}] * {CALLS}))"

Way = Callable[[], Awaitable[object]]


async def measured(ways: dict[str, Way], rounds: int) -> dict[str, float]:
    """The median milliseconds of each way, after one round that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            await way()
            if number:
                taken[name].append((time.perf_counter() - started) * 1_000)
    return {name: statistics.median(times) for name, times in taken.items()}


def client_ways(client: Client) -> dict[str, Way]:
    async def one_by_one() -> None:
        for _ in range(CALLS):
            await client.call_tool("call_tool", {"tool_name": "list_tags", "parameters": {}})

    async def empty() -> None:
        for _ in range(EMPTY):
            await client.call_tool("run_script", {"script": "1"})

    return {
        "client: calls one by one": one_by_one,
        "client: one script, calls one by one": lambda: client.call_tool("run_script", {"script": SCRIPT}),
        "client: one script, parallel": lambda: client.call_tool("run_script", {"script": AT_ONCE}),
        f"client: {EMPTY} empty scripts": empty,
    }


def ways_here(optimizer: Optimizer) -> dict[str, Way]:
    async def one_by_one() -> None:
        for _ in range(CALLS):
            await optimizer.gateway.call("list_tags", {}, "kanban")

    async def empty() -> None:
        for _ in range(EMPTY):
            await optimizer.run_script("1")

    return {
        "in process: calls one by one": one_by_one,
        "in process: one script, calls one by one": lambda: optimizer.run_script(SCRIPT),
        "in process: one script, parallel": lambda: optimizer.run_script(AT_ONCE),
        f"in process: {EMPTY} empty scripts": empty,
    }


async def all_ways(rounds: int) -> dict[str, float]:
    program, *arguments = demo_server_commands()["kanban"]
    servers = {"mcpServers": {"kanban": {"command": program, "args": arguments}}}
    options = ("--scripts", "read", "--database", "none", "--encoder", "none")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps(servers))
        serve = ["-m", "mcp_optimizer", "serve", "--alone", "--config", str(config), *options]
        async with (
            Client(StdioServerParameters(command=sys.executable, args=serve, env=dict(os.environ))) as client,
            Optimizer.from_config(servers, scripts="read", database="none", encoder="none") as optimizer,
        ):
            return await measured(client_ways(client) | ways_here(optimizer), rounds)


def written(taken: dict[str, float], rounds: int) -> str:
    lines = ["| what | milliseconds | against calls one by one |", "|---|---|---|"]
    for name, milliseconds in taken.items():
        where = name.partition(":")[0]
        share = milliseconds / taken[f"{where}: calls one by one"]
        lines.append(f"| {name} | {milliseconds:,.1f} | {'' if 'empty' in name else f'{share:.2f} times'} |")
    about = f"Median of {rounds} rounds, {CALLS} calls of one tool of the demo server each, all ways in turns."
    return f"# Calls in scripts\n\n`python -m benchmarks.gateway.script_speed --write`. {about}\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = written(uvloop.run(all_ways(given.rounds)), given.rounds)
    print(text)
    if given.write:
        RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
