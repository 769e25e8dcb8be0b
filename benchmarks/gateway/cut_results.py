"""Cut results a second, through gateways of two checkouts.

    python -m benchmarks.gateway.cut_results [--against FOLDER] [--rounds 4] [--calls 60]

A child process returns 200 kB of JSON, of which each gateway shows 10,000 tokens and keeps the rest. Four legacy
clients call at a time, with plain HTTP; the gateways take turns in rounds.
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

import httpx2

from benchmarks.clients import PlainClient, until_ready
from benchmarks.paths import ECHO_SERVER
from benchmarks.processes import free_port, process, processor_seconds

ROOT = Path(__file__).parents[2]
_AT_ONCE = 4
_CALL = {"name": "call_tool", "arguments": {"tool_name": "rows", "parameters": {"count": 2_350}}}


@dataclass
class Side:
    """The gateway of one checkout."""

    name: str
    pid: int
    clients: list[PlainClient]
    rates: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    async def round(self, calls: int) -> None:
        numbers = iter(range(1, calls + 1))

        async def caller(client: PlainClient) -> None:
            for number in numbers:
                answer = await client.request(number, "tools/call", _CALL)
                assert "mcp-optimizer/result" in answer["result"]["_meta"], answer

        used, started = processor_seconds(self.pid), time.perf_counter()
        await asyncio.gather(*map(caller, self.clients))
        self.rates.append(calls / (time.perf_counter() - started))
        self.processor.append(1_000 * (processor_seconds(self.pid) - used) / calls)


async def opened(stack: AsyncExitStack, checkout: Path, folder: Path) -> Side:
    port = free_port()
    config = folder / "mcp.json"
    entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
    options = ["--config", str(config), "--http", f"127.0.0.1:{port}", "--database", str(folder / f"{port}.db")]
    source = f"PYTHONPATH={checkout / 'src'}{os.pathsep}{ROOT}"
    command = ["env", source, sys.executable, "-m", "mcp_optimizer", "serve", *options]
    pid = await stack.enter_async_context(process(*command, port=port))
    http = await stack.enter_async_context(httpx2.AsyncClient(timeout=httpx2.Timeout(60)))
    clients = [PlainClient(http, f"http://127.0.0.1:{port}/mcp") for _ in range(_AT_ONCE)]
    for client in clients:
        await client.connect()
    await until_ready(http, port)
    return Side(checkout.name, pid, clients)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against] if options.against else [])]
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            sides = [await opened(stack, checkout, Path(folder)) for checkout in checkouts]
            for side in sides:
                await side.round(8)
                side.rates.clear()
                side.processor.clear()
            for _ in range(options.rounds):
                for side in sides:
                    await side.round(options.calls)
    print("| gateway | cut results a second | processor, ms each |\n|---|---|---|")
    for side in sides:
        print(f"| {side.name} | {statistics.median(side.rates):.1f} | {statistics.median(side.processor):.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
