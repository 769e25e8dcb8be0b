"""A thousand clients over HTTP that only listen, and two hundred that call.

    python -m benchmarks.gateway.many_clients [--idle 1000] [--busy 200] [--calls 10] [--write]

All are legacy clients with a session of their own; those that listen keep a stream open. They use plain HTTP, because
so many of the SDK's clients would mostly measure themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks.clients import PlainClient, until_ready
from benchmarks.paths import ECHO_SERVER, RESULTS
from benchmarks.processes import free_port, private_mb, process

RESULT = RESULTS / "clients.md"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=1_000, help="clients that only listen")
    parser.add_argument("--busy", type=int, default=200, help="clients that call")
    parser.add_argument("--calls", type=int, default=10, help="calls of each busy client")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
        config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
        command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(config), "--mode", "transparent"]
        command += ["--encoder", "none", "--database", "none", "--http", f"127.0.0.1:{port}"]
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            process(*command, port=port) as pid,
            httpx2.AsyncClient(timeout=httpx2.Timeout(120), limits=limits) as http,
        ):
            await until_ready(http, port)
            first = PlainClient(http, url)
            await first.connect()
            alone = [await first.call(number) for number in range(1, 60)]
            before = private_mb(pid)
            idle = [PlainClient(http, url) for _ in range(options.idle)]
            for group in range(0, len(idle), 50):
                await asyncio.gather(*(client.connect() for client in idle[group : group + 50]))
                await asyncio.gather(*(client.listen() for client in idle[group : group + 50]))
            with_idle = private_mb(pid)
            among_idle = [await first.call(number) for number in range(100, 160)]
            busy = [PlainClient(http, url) for _ in range(options.busy)]
            await asyncio.gather(*(client.connect() for client in busy))
            started = time.perf_counter()

            async def work(client: PlainClient) -> list[float]:
                return [await client.call(number) for number in range(1, options.calls + 1)]

            taken = [seconds for times in await asyncio.gather(*map(work, busy)) for seconds in times]
            rate = len(taken) / (time.perf_counter() - started)
            text = "\n".join(
                [
                    f"- {options.idle} idle clients with open streams: {with_idle - before:.0f} MB more "
                    f"({1_000 * (with_idle - before) / max(1, options.idle):.0f} kB each); a call among them takes "
                    f"{statistics.median(among_idle) / statistics.median(alone):.2f} times as long as alone",
                    f"- {options.busy} busy clients beside them: {len(taken)} calls, all answered, {rate:.0f} calls/s; "
                    f"p50 {1_000 * statistics.median(taken):.0f} ms, longest {1_000 * max(taken):.0f} ms",
                ]
            )
            print(text)
            if options.write:
                command_line = "`python -m benchmarks.gateway.many_clients`"
                RESULT.write_text(f"# Many clients\n\n{command_line}\n\n{text}\n", encoding="utf-8")
            for client in idle:
                if client.stream is not None:
                    client.stream.cancel()


if __name__ == "__main__":
    asyncio.run(main())
