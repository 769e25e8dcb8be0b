"""A call over HTTP, directly and through gateways of two checkouts.

    python -m benchmarks.gateway.http_ways [--against FOLDER] [--era legacy] [--back stdio] [--rounds 12]

The SDK's client calls the echo of these benchmarks. All ways are open at the same time and take turns in short rounds,
so that other load affects them alike. The client is a process of its own for all of them, and shares the cores with
what it measures.
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

from mcp import Client

from benchmarks.gateway.stdio_ways import measure
from benchmarks.gateway.ways import ECHO_BLOB, ECHO_CALL, FOUND_CALL, Way
from benchmarks.paths import ECHO_SERVER
from benchmarks.processes import free_port, process, processor_seconds

ROOT = Path(__file__).parents[2]
_AT_ONCE = 16


async def open_ways(stack: AsyncExitStack, folder: Path, checkouts: list[Path], era: str, back: str) -> list[Way]:
    enter, port = stack.enter_async_context, free_port()
    kind = ["legacy"] if back == "legacy" else []
    pid = await enter(process(sys.executable, str(ECHO_SERVER), str(port), *kind, port=port))
    address = f"http://127.0.0.1:{port}/mcp"
    ways = [Way("direct", await enter(Client(address, cache=None, mode=era)), ECHO_CALL, ECHO_BLOB, pid)]
    entry: dict[str, Any] = {"type": "http", "url": address}
    if back == "stdio":
        entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
    for checkout in checkouts:
        for mode, call in (("search", FOUND_CALL), ("transparent", ECHO_CALL)):
            name, port = f"{checkout.name}, {mode}", free_port()
            options = ["--mode", mode, "--database", str(folder / f"{name}.db"), "--max-rows", "0", "--max-tokens", "0"]
            command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(config), *options]
            source = f"PYTHONPATH={checkout / 'src'}{os.pathsep}{checkout}"
            pid = await enter(process("env", source, *command, "--http", f"127.0.0.1:{port}", port=port))
            client = await enter(Client(f"http://127.0.0.1:{port}/mcp", cache=None, mode=era))
            ways.append(Way(name, client, call, ECHO_BLOB, pid))
    for way in ways:
        await way.until_ready()
    return ways


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--era", default="auto", help="auto (modern, where the server is) or legacy")
    parser.add_argument(
        "--back", default="http", help="how the gateways reach the echo: http, stdio, or legacy (over HTTP)"
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against] if options.against else [])]
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            ways = await open_ways(stack, Path(folder), checkouts, options.era, options.back)
            used = await measure(ways, options.rounds, options.calls)
            rates: dict[str, list[float]] = {way.name: [] for way in ways}
            together = dict.fromkeys(rates, 0.0)
            calls = 4 * options.calls
            for _ in range(options.rounds):
                for way in ways:
                    before = processor_seconds(way.pid)
                    rates[way.name].append(await way.many(_AT_ONCE, calls))
                    together[way.name] += (processor_seconds(way.pid) - before) / (options.rounds * calls)
    head = f"| way ({options.era}, server over {options.back}) | p50 ms | x direct | processor, ms a call "
    print(f"{head}| calls/s at {_AT_ONCE} | x direct | processor at {_AT_ONCE} |\n|---|---|---|---|---|---|---|")
    direct, most = statistics.median(ways[0].seconds), statistics.median(rates["direct"])
    for way in ways:
        p50, rate = statistics.median(way.seconds), statistics.median(rates[way.name])
        print(
            f"| {way.name} | {1_000 * p50:.2f} | {p50 / direct:.2f} | {1_000 * used[way.name]:.2f} "
            f"| {rate:.0f} | {rate / most:.2f} | {1_000 * together[way.name]:.2f} |"
        )


if __name__ == "__main__":
    asyncio.run(main())
