"""What the gateway adds to a call, compared with FastMCP 4's proxy.

    python -m benchmarks.gateway [--fastmcp PYTHON] [--quick] [--pair http-stdio] [--write]

Measures the same echo directly, through the gateway and through the proxy. PYTHON is an interpreter with FastMCP 4.
All ways are open at the same time and take turns in short rounds, so that other load on the machine affects them
alike. What counts is the ratio to the direct way.
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

from benchmarks.gateway.ways import ECHO_BLOB, ECHO_CALL, FOUND_BLOB, FOUND_CALL, Way
from benchmarks.paths import ECHO_SERVER, RESULTS
from benchmarks.processes import children, free_port, private_mb, process

RESULT = RESULTS / "gateway.md"
_FASTMCP_PROXY = Path(__file__).with_name("fastmcp_proxy.py")
PAIRS = (("stdio", "stdio"), ("http", "http"), ("http", "stdio"))


async def open_ways(stack: AsyncExitStack, front: str, back: str, folder: Path, fastmcp: str | None) -> list[Way]:
    enter = stack.enter_async_context
    target: Any = StdioServerParameters(command=sys.executable, args=[str(ECHO_SERVER)])
    entry: dict[str, Any] = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    behind = f"{sys.executable}|{ECHO_SERVER}"
    if back == "http":
        port = free_port()
        await enter(process(sys.executable, str(ECHO_SERVER), str(port), port=port))
        target = behind = f"http://127.0.0.1:{port}/mcp"
        entry = {"type": "http", "url": behind}
    direct = await enter(Client(target if front == back else await _http_echo(stack), cache=None))
    ways = [Way("direct", direct, ECHO_CALL, ECHO_BLOB)]
    config = folder / f"{front}-{back}.json"
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
    # Limits are off, so that a megabyte arrives whole; history, accounts and metadata are on, which is the default.
    for name, mode, call, blob in (
        ("through us", "search", FOUND_CALL, FOUND_BLOB),
        ("through us, transparent", "transparent", ECHO_CALL, ECHO_BLOB),
    ):
        where = ["--config", str(config), "--database", str(folder / f"{mode}.db")]
        options = ["serve", "--alone", "--mode", mode, *where]
        command = [sys.executable, "-m", "mcp_optimizer", *options, "--max-rows", "0", "--max-tokens", "0"]
        ways.append(await _open(stack, name, front, command, "--http", call, blob))
    if fastmcp:
        script = str(_FASTMCP_PROXY)
        for name, reuse in (("FastMCP 4 proxy, as it comes", []), ("FastMCP 4 proxy, one client reused", ["--reuse"])):
            if front == "stdio":
                ways.append(
                    await _open(
                        stack, name, front, [fastmcp, script, "stdio", behind, *reuse], "", ECHO_CALL, ECHO_BLOB
                    )
                )
                continue
            port = free_port()
            pid = await enter(process(fastmcp, script, str(port), behind, *reuse, port=port))
            client = await enter(Client(f"http://127.0.0.1:{port}/mcp", cache=None))
            ways.append(Way(name, client, ECHO_CALL, ECHO_BLOB, pid))
    for way in ways:
        await way.until_ready()
    return ways


async def _http_echo(stack: AsyncExitStack) -> str:
    """The echo server over HTTP: the direct way for an HTTP client if the gateway's server is a child process."""
    port = free_port()
    await stack.enter_async_context(process(sys.executable, str(ECHO_SERVER), str(port), port=port))
    return f"http://127.0.0.1:{port}/mcp"


async def _open(
    stack: AsyncExitStack, name: str, front: str, command: list[str], flag: str, call: Any, blob: Any
) -> Way:
    if front == "stdio":
        before = set(children(os.getpid()))
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        client = await stack.enter_async_context(Client(parameters, cache=None))
        return Way(name, client, call, blob, next(iter(set(children(os.getpid())) - before), 0))
    port = free_port()
    pid = await stack.enter_async_context(process(*command, flag, f"127.0.0.1:{port}", port=port))
    client = await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp", cache=None))
    return Way(name, client, call, blob, pid)


async def measure(ways: list[Way], rounds: int, calls: int) -> None:
    for way in ways:
        for _ in range(10):
            await way.one()
        way.seconds.clear()
    for _ in range(rounds):
        for way in ways:
            # Fewer calls are enough to measure a slow way.
            slow = bool(way.seconds) and statistics.median(way.seconds) > 0.03
            for _ in range(max(3, calls // 10) if slow else calls):
                await way.one()
    for at_once in (1, 16, 64):
        for way in ways:
            expected = 1 / statistics.median(way.seconds)
            # About a second's worth of calls, and at least one for each caller.
            number = max(at_once, int(min(expected, 400)))
            found = [await way.many(at_once, number) for _ in range(1 if rounds < 10 else 3)]
            way.per_second[at_once] = statistics.median(found)
    for _ in range(max(2, rounds // 2)):
        for way in ways:
            await way.large()
    for way in ways:
        way.memory = private_mb(way.pid)


def report(front: str, back: str, ways: list[Way]) -> list[str]:
    direct = ways[0]
    lines = [
        f"## {front} to {back}",
        "",
        "| way | p50 ms | p95 | p99 | x direct (p50) | calls/s at 1 | at 16 | at 64 | x direct at 16 | 1 MB p50 ms "
        "| x direct | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for way in ways:
        times = sorted(way.seconds)
        p50, p95, p99 = (1_000 * times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.95, 0.99))
        ratio = statistics.median(times) / statistics.median(direct.seconds)
        rates = way.per_second
        blob = statistics.median(way.blob_seconds)
        lines.append(
            f"| {way.name} | {p50:.2f} | {p95:.2f} | {p99:.2f} | **{ratio:.2f}** "
            f"| {rates[1]:.0f} | {rates[16]:.0f} | {rates[64]:.0f} | {rates[16] / direct.per_second[16]:.2f} "
            f"| {1_000 * blob:.1f} | {blob / statistics.median(direct.blob_seconds):.2f} "
            f"| {f'{way.memory:.0f}' if way.memory else ''} |"
        )
    return [*lines, ""]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fastmcp", help="an interpreter with FastMCP 4; without it, its proxy is not measured")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls")
    parser.add_argument("--pair", help="only this pair of transports, such as http-stdio")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    rounds, calls = (4, 50) if options.quick else (12, 100)
    lines: list[str] = []
    for front, back in PAIRS:
        if options.pair not in (None, f"{front}-{back}"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            async with AsyncExitStack() as stack:
                ways = await open_ways(stack, front, back, Path(folder), options.fastmcp)
                await measure(ways, rounds, calls)
        lines += report(front, back, ways)
        print("\n".join(lines[-len(ways) - 5 :]), flush=True)
        if options.write:
            keep(lines)


def keep(lines: list[str]) -> None:
    about = [
        "# What the gateway adds to a call",
        "",
        "`python -m benchmarks.gateway`: an echo of 1 kB (and a result of 1 MB) from the SDK's client to the SDK's "
        "low-level server, directly, through us and through FastMCP 4's proxy, taking turns in one run. "
        "History, accounts and result metadata are on. MB: private memory of the process in the middle.",
        "",
        f"`x direct at 16` is the throughput against what two processes on two cores allow: directly, a client and a "
        f"server share the machine ({len(os.sched_getaffinity(0))} cores here); through a gateway there are three "
        "processes, or more, on the same cores.",
        "",
    ]
    RESULT.write_text("\n".join([*about, *lines]).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
