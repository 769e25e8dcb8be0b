"""Calls a second with one, two and three workers, and with gateways of their own.

    python -m benchmarks.gateway.workers [--rounds 6] [--calls 1500]

Sixteen connections call the echo of these benchmarks, which each gateway starts as a child process, as modern clients
with plain HTTP, because the SDK's client would take more processor time than what it measures. All ways are open at
the same time and take turns in rounds. "Processes" are separate gateways, with a share of the connections each.
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
from benchmarks.processes import children, free_port, process, processor_seconds

_CONNECTIONS = 16


class Caller:
    """One connection, which calls as fast as it is answered."""

    def __init__(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, port: int) -> Caller:
        async with httpx2.AsyncClient() as http:
            client = PlainClient(http, f"http://127.0.0.1:{port}/mcp", is_modern=True)
            await client.connect()
            params = {"name": "echo", "arguments": {"text": "x" * 100}}
            made = client.made({"id": 1, "method": "tools/call", "params": params})
        head = "".join(f"{name}: {value}\r\n" for name, value in made.headers.items())
        request = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + made.content
        return cls(request, *await asyncio.open_connection("127.0.0.1", port))

    async def call(self) -> None:
        self._writer.write(self._request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        assert head.startswith(b"http/1.1 200"), head
        assert b"xxx" in body, body

    def close(self) -> None:
        self._writer.close()


@dataclass
class Way:
    """Some processes that answer at some ports."""

    name: str
    pids: list[int]
    ports: list[int]
    rates: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def _used(self) -> float:
        every = [pid for parent in self.pids for pid in (parent, *children(parent))]
        return sum(processor_seconds(pid) for pid in every if not _is_server(pid))

    async def round(self, calls: int) -> None:
        callers = [await Caller.opened(self.ports[number % len(self.ports)]) for number in range(_CONNECTIONS)]
        await asyncio.gather(*(caller.call() for caller in callers))
        left = iter(range(calls))

        async def go_on(caller: Caller) -> None:
            for _ in left:
                await caller.call()

        used, started = self._used(), time.perf_counter()
        await asyncio.gather(*map(go_on, callers))
        self.rates.append(calls / (time.perf_counter() - started))
        self.processor.append((self._used() - used) / calls)
        for caller in callers:
            caller.close()


def _is_server(pid: int) -> bool:
    return ECHO_SERVER.name in Path(f"/proc/{pid}/cmdline").read_text()


async def open_ways(stack: AsyncExitStack, folder: Path) -> list[Way]:
    config, ways = folder / "mcp.json", []
    entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")

    async def started(database: str, *options: str) -> tuple[int, int]:
        port = free_port()
        command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(config), "--mode", "transparent"]
        command += ["--database", str(folder / database), "--http", f"127.0.0.1:{port}", *options]
        return await stack.enter_async_context(process(*command, port=port)), port

    for count in (1, 2, 3):
        pid, port = await started(f"workers{count}.db", *(["--workers", str(count)] if count > 1 else []))
        ways.append(Way(f"{count} worker{'s' * (count > 1)}", [pid], [port]))
    for count in (2, 3):
        both = [await started(f"processes{count}.db") for _ in range(count)]
        ways.append(Way(f"{count} processes", [pid for pid, _ in both], [port for _, port in both]))
    async with httpx2.AsyncClient() as http:
        for port in [port for way in ways for port in way.ports]:
            await until_ready(http, port)
    return ways


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=1_500, help="in a round of one way")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            ways = await open_ways(stack, Path(folder))
            for _ in range(options.rounds):
                for way in ways:
                    await way.round(options.calls)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {_CONNECTIONS} connections\n")
    print("| way | calls/s | x one worker | processor of the gateways, ms a call |\n|---|---|---|---|")
    for way in ways:
        rate, one = statistics.median(way.rates), statistics.median(ways[0].rates)
        print(f"| {way.name} | {rate:.0f} | {rate / one:.2f} | {1_000 * statistics.median(way.processor):.2f} |")


if __name__ == "__main__":
    asyncio.run(main())
