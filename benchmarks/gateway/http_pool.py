"""Our HTTP/1.1 connections to servers, compared with httpx's own transport.

    python -m benchmarks.gateway.http_pool [--quick] [--write]

First both transports alone, below the same client and in front of a server that does nothing; then two gateways that
differ only in their transport, in front of the same echo server. All of them take turns in one run. What counts is the
ratio, and for the transports alone the processor time, which other load on the machine does not change. With aiohttp
installed, its client is measured as well. Ours is `upstream/connections.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
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

from benchmarks.gateway.ways import ECHO_CALL, Way
from benchmarks.paths import ECHO_SERVER, RESULTS
from benchmarks.processes import free_port, process
from mcp_optimizer.upstream.connections import KeptConnections

RESULT = RESULTS / "http_pool.md"
OURS, HTTPX, AIOHTTP = "ours", "httpx's own", "aiohttp"
_BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"text": "x" * 1_000}}).encode()
_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_SWITCH = (
    "from mcp_optimizer.upstream import http_client\n"
    "http_client._is_proxied = lambda url: True\n"
    "from mcp_optimizer.cli import main\n"
    "main()\n"
)
"""A gateway whose servers are reached by httpx's own transport, as they are through a proxy."""


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


async def transports(stack: AsyncExitStack, url: str) -> list[Side]:
    kept = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=3.0)
    made = {
        OURS: httpx2.AsyncClient(transport=KeptConnections(httpx2.create_ssl_context, 3.0), timeout=None),
        HTTPX: httpx2.AsyncClient(limits=kept, timeout=None),
    }
    sides = [Side(name, _post_with(await stack.enter_async_context(client), url)) for name, client in made.items()]
    if importlib.util.find_spec("aiohttp"):
        sides.append(Side(AIOHTTP, await _aiohttp(stack, url)))
    return sides


def _post_with(client: httpx2.AsyncClient, url: str) -> Callable[[], Awaitable[int]]:
    async def post() -> int:
        async with client.stream("POST", url, content=_BODY, headers=_HEADERS) as response:
            return len(await response.aread())

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
        sides = await transports(stack, f"http://127.0.0.1:{port}/mcp")
        for number in range(rounds + 1):
            for at_once in (1, 32):
                for side in sides[:: 1 if number % 2 else -1]:
                    if number == 1:
                        side.seconds.clear()
                    await side.measure(at_once, 400)
    return _table(sides)


def _table(sides: list[Side]) -> list[str]:
    lines = [
        "| transport | p50 ms | CPU ms | CPU ms at 32 | requests/s | at 32 | CPU x ours | at 32 |",
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


async def through_gateways(rounds: int) -> list[str]:
    echo = free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(process(sys.executable, str(ECHO_SERVER), str(echo), port=echo))
            config = Path(folder) / "mcp.json"
            entry = {"type": "http", "url": f"http://127.0.0.1:{echo}/mcp"}
            config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
            ways = [await _gateway(stack, name, config) for name in (OURS, HTTPX)]
            for number in range(rounds + 1):
                for way in ways[:: 1 if number % 2 else -1]:
                    if number == 1:
                        way.seconds.clear()
                    for _ in range(100):
                        await way.one()
                    rate = await way.many(16, 300)
                    way.per_second[number] = rate
    lines = ["| gateway with | p50 ms | p95 ms | calls/s at 16 | p50 x ours |", "|---" * 5 + "|"]
    base = statistics.median(ways[0].seconds)
    for way in ways:
        times = sorted(way.seconds)
        p95 = 1_000 * times[int(len(times) * 0.95)]
        rate = statistics.median(list(way.per_second.values())[1:])
        p50 = statistics.median(times)
        lines.append(f"| {way.name} | {1_000 * p50:.2f} | {p95:.2f} | {rate:.0f} | **{p50 / base:.2f}** |")
    return lines


async def _gateway(stack: AsyncExitStack, name: str, config: Path) -> Way:
    port = free_port()
    start = ["-m", "mcp_optimizer"] if name == OURS else ["-c", _SWITCH]
    options = ["serve", "--config", str(config), "--mode", "transparent", "--database", str(config.with_suffix(".db"))]
    command = [sys.executable, *start, *options, "--http", f"127.0.0.1:{port}"]
    pid = await stack.enter_async_context(process(*command, port=port))
    client = await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp", cache=None))
    way = Way(name, client, ECHO_CALL, ECHO_CALL, pid)
    await way.until_ready()
    return way


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
    lines = ["## The transports alone", "", *await alone(rounds)]
    lines += ["", "## Through the gateway, HTTP to HTTP", "", *await through_gateways(rounds)]
    print("\n".join(lines))
    if options.write:
        about = ["# HTTP connections to servers", "", "`python -m benchmarks.gateway.http_pool`", ""]
        RESULT.write_text("\n".join([*about, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
