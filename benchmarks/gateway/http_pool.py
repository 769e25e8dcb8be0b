"""Our HTTP/1.1 connections to servers, compared with httpx's own transport and with aiohttp.

    python -m benchmarks.gateway.http_pool [--quick] [--write]

First the clients alone, in front of a server that does nothing: each sends what the gateway sends for a call, and reads
the body as the gateway does; aiohttp also bare, as its users call it. Then gateways that differ only in their client,
in front of the same echo server. All take turns in one run, on the gateway's event loop. What counts is the ratio of
processor time, which other load on the machine changes least. aiohttp is left out where it is not installed. Ours is
`upstream/transports/connections.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client

from benchmarks.gateway.http_clients import AIOHTTP, HTTPX, OURS, AiohttpClient
from benchmarks.gateway.ways import ECHO_CALL, Way
from benchmarks.paths import ECHO_SERVER, RESULTS
from benchmarks.processes import free_port, private_mb, process, processor_seconds
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.upstream.transports.http_client import AuthorizedHttp, ServerClient, http_client, whole_body

RESULT = RESULTS / "http_pool.md"
_HAS_AIOHTTP = importlib.util.find_spec("aiohttp") is not None
_ONLY_AIOHTTP = ("aiohttp", "aiohappyeyeballs", "aiosignal", "frozenlist", "multidict", "propcache", "yarl")
_BARE = "aiohttp, bare"
_BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"text": "x" * 1_000}}).encode()
_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_CALLS = 100
_AT_ONCE = 16
_IMPORT = (
    "import sys, time\n"
    "import httpx2, httptools, asyncio, ssl, typing, socket, time\n"
    "from benchmarks.processes import resident_mb\n"
    "memory, began = resident_mb(), time.process_time()\n"
    "import {module}\n"
    "print(time.process_time() - began, resident_mb() - memory)\n"
)
"""What a client adds to a process that has imported httpx2 for the SDK, and the parser for its own HTTP server."""


class _Server(asyncio.Protocol):
    """Answers each request at once. A request is complete when its body is: they are all of one length."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received and self._received.endswith(_BODY[-20:]):
            self._received = b""
            self._transport.write(_RESPONSE)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", port)
    await server.serve_forever()


@dataclass
class Side:
    """One transport, and what was measured on it."""

    name: str
    post: Callable[[], Awaitable[int]]
    seconds: list[float] = field(default_factory=list)
    cpu: dict[int, list[float]] = field(default_factory=dict)
    rate: dict[int, list[float]] = field(default_factory=dict)

    async def measure(self, at_once: int, requests: int) -> None:
        left = iter(range(requests))

        async def caller() -> None:
            for _ in left:
                began = time.perf_counter()
                assert await self.post() == len(_BODY)
                if at_once == 1:
                    self.seconds.append(time.perf_counter() - began)

        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(at_once)))
        self.cpu.setdefault(at_once, []).append((time.process_time() - cpu) / requests)
        self.rate.setdefault(at_once, []).append(requests / (time.perf_counter() - wall))


async def clients(stack: AsyncExitStack, url: str) -> list[Side]:
    spec = ServerSpec(name="echo", transport=Transport.HTTP, url=url)
    made = {OURS: http_client(spec), HTTPX: ServerClient({"accept-encoding": "gzip"}, None)}
    if _HAS_AIOHTTP:
        made[AIOHTTP] = AiohttpClient({"accept-encoding": "gzip"}, DEFAULT_LIMITS)
    sides = [Side(name, _post_with(await stack.enter_async_context(client), url)) for name, client in made.items()]
    if _HAS_AIOHTTP:
        sides.append(Side(_BARE, await _aiohttp(stack, url)))
    return sides


def _post_with(client: ServerClient, url: str) -> Callable[[], Awaitable[int]]:
    http, address = AuthorizedHttp(client, None), httpx2.URL(url)

    async def post() -> int:
        async with http.stream("POST", address, _HEADERS, _BODY) as response:
            return len(await whole_body(response, 1_000_000))

    return post


async def _aiohttp(stack: AsyncExitStack, url: str) -> Callable[[], Awaitable[int]]:
    aiohttp: Any = importlib.import_module("aiohttp")
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))

    async def post() -> int:
        async with session.post(url, data=_BODY, headers=_HEADERS) as response:
            return len(await response.read())

    return post


async def alone(rounds: int) -> list[str]:
    port = free_port()
    async with AsyncExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.gateway.http_pool", "--serve", str(port)]
        await stack.enter_async_context(process(*command, port=port))
        sides = await clients(stack, f"http://127.0.0.1:{port}/mcp")
        for number in range(rounds + 1):
            for at_once in (1, 32):
                for side in sides[:: 1 if number % 2 else -1]:
                    if number == 1:
                        side.seconds.clear()
                    await side.measure(at_once, 400)
    return _table(sides)


def _table(sides: list[Side]) -> list[str]:
    lines = [
        "| client | p50 ms | CPU ms | CPU ms at 32 | requests/s | at 32 | CPU x ours | at 32 |",
        "|---" * 8 + "|",
    ]
    ours = sides[0]
    for side in sides:
        cpu = {at: 1_000 * statistics.median(found[1:]) for at, found in side.cpu.items()}
        base = {at: 1_000 * statistics.median(found[1:]) for at, found in ours.cpu.items()}
        rate = {at: statistics.median(found[1:]) for at, found in side.rate.items()}
        lines.append(
            f"| {side.name} | {1_000 * statistics.median(side.seconds):.3f} | {cpu[1]:.3f} | {cpu[32]:.3f} "
            f"| {rate[1]:.0f} | {rate[32]:.0f} | **{cpu[1] / base[1]:.2f}** | **{cpu[32] / base[32]:.2f}** |"
        )
    return lines


@dataclass
class Gateway:
    """A gateway with one of the clients, and what it used."""

    way: Way
    cpu: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def round(self) -> None:
        before = processor_seconds(self.way.pid)
        for _ in range(_CALLS):
            await self.way.one()
        between = processor_seconds(self.way.pid)
        self.rates.append(await self.way.many(_AT_ONCE, 3 * _CALLS))
        self.cpu.append((between - before) / _CALLS)
        self.together.append((processor_seconds(self.way.pid) - between) / (3 * _CALLS))


async def through_gateways(rounds: int) -> list[str]:
    echo = free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(process(sys.executable, str(ECHO_SERVER), str(echo), port=echo))
            config = Path(folder) / "mcp.json"
            entry = {"type": "http", "url": f"http://127.0.0.1:{echo}/mcp"}
            config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
            names = [OURS, HTTPX, *([AIOHTTP] if _HAS_AIOHTTP else [])]
            gateways = [Gateway(await _gateway(stack, name, config)) for name in names]
            for one in gateways:
                await one.round()
                one.way.seconds.clear()
                for measured in (one.cpu, one.together, one.rates):
                    measured.clear()
            for number in range(rounds):
                for one in gateways[:: 1 if number % 2 else -1]:
                    await one.round()
            memory = [private_mb(one.way.pid) for one in gateways]
    lines = [
        f"| gateway with | p50 ms | p95 ms | CPU ms a call | at {_AT_ONCE} | calls/s at {_AT_ONCE} | private MB "
        f"| CPU x ours | at {_AT_ONCE} |",
        "|---" * 9 + "|",
    ]
    base = gateways[0]
    for one, mb in zip(gateways, memory, strict=True):
        times = sorted(one.way.seconds)
        p50, p95 = 1_000 * statistics.median(times), 1_000 * times[int(len(times) * 0.95)]
        cpu, together = statistics.mean(one.cpu), statistics.mean(one.together)
        lines.append(
            f"| {one.way.name} | {p50:.2f} | {p95:.2f} | {1_000 * cpu:.2f} | {1_000 * together:.2f} "
            f"| {statistics.median(one.rates):.0f} | {mb:.1f} | **{cpu / statistics.mean(base.cpu):.2f}** "
            f"| **{together / statistics.mean(base.together):.2f}** |"
        )
    return lines


async def _gateway(stack: AsyncExitStack, name: str, config: Path) -> Way:
    port = free_port()
    database = config.with_name(f"{port}.db")
    options = ["serve", "--config", str(config), "--mode", "transparent", "--database", str(database)]
    options += ["--max-rows", "0", "--max-tokens", "0", "--http", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "benchmarks.gateway.http_clients", name, *options]
    pid = await stack.enter_async_context(process(*command, port=port))
    client = await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp", cache=None))
    way = Way(name, client, ECHO_CALL, ECHO_CALL, pid)
    await way.until_ready()
    return way


def costs() -> list[str]:
    """What each client takes to import; for aiohttp also on the disk, with what only it needs."""
    lines = ["| client | import, CPU ms | memory, MB | installed, MB |", "|---" * 4 + "|"]
    names = ["mcp_optimizer.upstream.transports.connections", *(["aiohttp"] if _HAS_AIOHTTP else [])]
    for name in names:
        runs = [
            subprocess.run([sys.executable, "-c", _IMPORT.format(module=name)], capture_output=True, check=True).stdout
            for _ in range(7)
        ]
        seconds, memory = (statistics.median(float(run.split()[at]) for run in runs) for at in (0, 1))
        size = f"{sum(map(_installed_mb, _ONLY_AIOHTTP)):.1f}" if name == "aiohttp" else "0"
        lines.append(f"| {name} | {1_000 * seconds:.0f} | {memory:.1f} | {size} |")
    return lines


def _installed_mb(name: str) -> float:
    files = importlib.metadata.files(name) or []
    return (
        sum(size for file in files if (path := Path(str(file.locate()))).exists() and (size := path.stat().st_size))
        / 1e6
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULT.name}")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        await serve(options.serve)
        return
    rounds = 4 if options.quick else 12
    lines = ["## The clients alone", "", *await alone(rounds)]
    lines += ["", "## Through the gateway, HTTP to HTTP", "", *await through_gateways(rounds)]
    lines += ["", "## What an import adds", "", *costs()]
    print("\n".join(lines))
    if options.write:
        about = ["# HTTP connections to servers", "", "`python -m benchmarks.gateway.http_pool --write`", ""]
        RESULT.write_text("\n".join([*about, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main())
