"""How long a client waits for one megabyte, directly and through the gateway.

    python -m benchmarks.gateway.megabyte [--fastmcp PYTHON] [--front stdio] [--rounds 15] [--write]

The SDK's client calls the SDK's low-level server, which runs as a child process (directly on stdio, or over HTTP for
a client over HTTP). All ways are open at the same time and take turns, call by call, so that other load on the machine
affects them alike. What counts is the ratio to the direct way. PYTHON is an interpreter with FastMCP 4.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks.gateway import echo_server
from benchmarks.paths import ECHO_SERVER, RESULTS
from benchmarks.processes import children, free_port, process, processor_seconds

RESULT = RESULTS / "megabyte.md"
_FASTMCP_PROXY = Path(__file__).with_name("fastmcp_proxy.py")
_SIZE = 1_000_000

WHOLE = ("--max-tokens", "0", "--max-rows", "0")
GATEWAYS = (
    ("through us, cut to the default limits", ()),
    ("through us, whole", WHOLE),
    ("through us, transparent and whole", (*WHOLE, "--mode", "transparent")),
)


def kinds() -> dict[str, tuple[str, dict[str, int]]]:
    """Results of about a megabyte on the wire: what they are called, the tool and its arguments."""
    row = len(json.dumps(json.dumps(echo_server.objects(10_000)))) / 10_000
    structured = len(json.dumps(echo_server.objects(10_000))) / 10_000
    line = len(json.dumps(echo_server.lines(10_000))) / 10_000
    return {
        "one word": ("blob", {"size": _SIZE}),
        "lines of text": ("lines", {"count": round(_SIZE / line)}),
        "JSON in a text": ("rows", {"count": round(_SIZE / row)}),
        "JSON in a text and structured": ("both", {"count": round(_SIZE / (row + structured))}),
    }


@dataclass
class Way:
    """One way to the server, and what each kind of result took on it."""

    name: str
    client: Client
    pid: int = 0
    is_wrapped: bool = False
    """Whether tools are called by `call_tool`."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)

    async def call(self, tool: str, arguments: dict[str, int]) -> Any:
        if self.is_wrapped:
            return await self.client.call_tool("call_tool", {"tool_name": tool, "parameters": arguments})
        return await self.client.call_tool(tool, arguments)

    async def until_ready(self) -> None:
        async with asyncio.timeout(60):
            while (await self.call("lines", {"count": 1})).is_error:
                await asyncio.sleep(0.2)

    async def timed(self, kind: str, tool: str, arguments: dict[str, int]) -> None:
        used, started = processor_seconds(self.pid) if self.pid else 0.0, time.perf_counter()
        result = await self.call(tool, arguments)
        self.seconds.setdefault(kind, []).append(time.perf_counter() - started)
        self.processor[kind] = self.processor.get(kind, 0.0) + (processor_seconds(self.pid) if self.pid else 0) - used
        assert not result.is_error, result


async def opened(stack: AsyncExitStack, front: str, folder: Path, fastmcp: str | None) -> list[Way]:
    enter = stack.enter_async_context
    server: Any = StdioServerParameters(command=sys.executable, args=[str(ECHO_SERVER)])
    if front == "http":
        port = free_port()
        await enter(process(sys.executable, str(ECHO_SERVER), str(port), port=port))
        server = f"http://127.0.0.1:{port}/mcp"
    ways = [Way("direct", await enter(Client(server, cache=None)))]
    config = folder / "mcp.json"
    entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
    for number, (name, options) in enumerate(GATEWAYS):
        command = [sys.executable, "-m", "mcp_optimizer", "serve", "--alone", "--config", str(config)]
        command += ["--database", str(folder / f"{front}{number}.db"), *options]
        way = await _behind(stack, front, command, "--http")
        way.name, way.is_wrapped = name, "transparent" not in name
        ways.append(way)
    if fastmcp:
        behind = f"{sys.executable}|{ECHO_SERVER}"
        way = await _behind(stack, front, [fastmcp, str(_FASTMCP_PROXY)], "", behind, "--reuse")
        way.name = "FastMCP 4 proxy, one client reused"
        ways.append(way)
    for way in ways:
        await way.until_ready()
    return ways


async def _behind(stack: AsyncExitStack, front: str, command: list[str], flag: str, *rest: str) -> Way:
    """A way through a process in the middle."""
    if front == "stdio":
        before = set(children(os.getpid()))
        command += [*([] if flag else ["stdio"]), *rest]
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        client = await stack.enter_async_context(Client(parameters, cache=None))
        return Way("", client, next(iter(set(children(os.getpid())) - before), 0))
    port = free_port()
    command += [flag, f"127.0.0.1:{port}"] if flag else [str(port), *rest]
    pid = await stack.enter_async_context(process(*command, port=port))
    return Way("", await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp", cache=None)), pid)


async def measure(front: str, rounds: int, fastmcp: str | None) -> list[str]:
    chosen = kinds()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            ways = await opened(stack, front, Path(folder), fastmcp)
            for number in range(rounds + 2):
                for kind, (tool, arguments) in chosen.items():
                    for way in ways:
                        await way.timed(kind, tool, arguments)
                if number == 1:
                    for way in ways:
                        way.seconds.clear()
                        way.processor.clear()
    direct = ways[0].seconds
    lines = [
        f"## Client on {front}",
        "",
        "| way |" + "".join(f" {kind} |" for kind in chosen),
        "|---|" + "---|" * len(chosen),
    ]
    for way in ways:
        cells = [_cell(way, kind, direct[kind]) for kind in chosen]
        lines.append(f"| {way.name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(way: Way, kind: str, direct: list[float]) -> str:
    took = statistics.median(way.seconds[kind])
    times = f"**{took / statistics.median(direct):.2f}** x, " if way.seconds[kind] is not direct else ""
    processor = f", processor {1_000 * way.processor[kind] / len(direct):.0f}" if way.pid else ""
    return f"{times}{1_000 * took:.0f} ms{processor}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fastmcp", help="an interpreter with FastMCP 4; without it, its proxy is not measured")
    parser.add_argument("--front", choices=["stdio", "http"], help="only clients on this transport")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help=f"write the tables in {RESULT.name}")
    options = parser.parse_args()
    lines: list[str] = []
    for front in [options.front] if options.front else ["stdio", "http"]:
        lines += await measure(front, options.rounds, options.fastmcp)
        print("\n".join(lines), flush=True)
    if options.write:
        # The text above the tables is written by hand, and stays.
        head = RESULT.read_text(encoding="utf-8").partition("## Client on")[0]
        RESULT.write_text(head + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
