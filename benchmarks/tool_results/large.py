"""A result of fifty megabytes through the gateway: memory, and delays of other calls.

    python -m benchmarks.tool_results.large [--write] [--only TEXT] [--size BYTES]

Each row is a gateway process of its own, started as a client would start it, with real servers behind it. Meanwhile,
calls to another server go on. How long they wait, and how long the gateway's event loop stops, is compared with the
same gateway without the large result, because on a busy machine everything waits. What arrives is checked against what
was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.paths import RESULTS
from benchmarks.processes import free_port, is_listening
from benchmarks.tool_results.large_clients import HELLO, Client, HttpClient, StdioClient
from benchmarks.tool_results.large_server import KINDS, result

RESULT = RESULTS / "large_results.md"
SERVER = Path(__file__).with_name("large_server.py")
GATEWAY = Path(__file__).with_name("large_gateway.py")
SIZE = 50_000_000
IDLE_SECONDS = 2.0

WHOLE = ("--max-tokens", "0", "--max-rows", "0")
TRANSPARENT = ("--mode", "transparent")


@dataclass(frozen=True)
class Row:
    """One kind of result on one path through the gateway."""

    kind: str
    server: str = "stdio"
    client: str = "http"
    options: tuple[str, ...] = ()
    then: str = ""
    """Arguments of read_result, as JSON: what is read of the kept result while other calls go on."""

    @property
    def is_whole(self) -> bool:
        return bool(self.options)

    @property
    def name(self) -> str:
        how = "" if not self.options else ", transparent" if self.options == TRANSPARENT else ", no limits"
        return f"{self.kind}; server {self.server}, client {self.client}{how}{', ' + self.then if self.then else ''}"


ROWS = (
    *(Row(kind) for kind in KINDS),
    *(Row(kind, server) for server in ("json", "sse") for kind in ("lines", "structured")),
    *(Row(kind, client="stdio") for kind in ("lines", "structured")),
    *(Row(kind, options=WHOLE) for kind in ("lines", "json", "structured", "only", "blocks", "image")),
    *(Row(kind, client="stdio", options=WHOLE) for kind in ("lines", "structured")),
    *(Row(kind, options=TRANSPARENT) for kind in ("lines", "structured", "image")),
    Row("structured", "sse", "stdio", TRANSPARENT),
    Row("json", then='{"offset": 200000}'),
    Row("json", then='{"search": "\\"id\\": 399999"}'),
    Row("json", then='{"select": "items[?id > `399990`].name"}'),
    Row("json", then='{"select": "max_by(items, &id)"}'),
    Row("lines", then='{"offset": 200000}'),
    Row("lines", then='{"search": "399999:"}'),
)


class Watched:
    """A gateway process, seen from outside."""

    def __init__(self, process: asyncio.subprocess.Process, stops: Path) -> None:
        self._folder = Path("/proc") / str(process.pid)
        self._stops = stops

    def memory(self, field: str) -> float:
        """Megabytes: VmRSS is the present size, VmHWM the largest since `forget`."""
        found = re.search(rf"{field}:\s+(\d+)", (self._folder / "status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def forget(self) -> None:
        (self._folder / "clear_refs").write_text("5")
        # In place, because the gateway has the file mapped.
        with self._stops.open("r+b") as file:
            file.write(bytes(8))

    @property
    def longest_stop(self) -> float:
        return float(struct.unpack("d", self._stops.read_bytes())[0])


@asynccontextmanager
async def gateway(row: Row, folder: Path) -> AsyncIterator[tuple[Client, Client, Watched]]:
    """Start a gateway and its servers: the client of the large result, the client of the other calls, the process."""
    async with AsyncExitStack() as stack:
        config, stops = folder / "mcp.json", folder / "stops"
        small = {"command": sys.executable, "args": [str(SERVER)]}
        large = {**small, "timeout": 300}
        if row.server != "stdio":
            port = free_port()
            command = [sys.executable, str(SERVER), "--http", str(port), "--body", row.server]
            serving = await asyncio.create_subprocess_exec(*command)
            stack.push_async_callback(serving.wait)
            stack.callback(serving.kill)
            while not is_listening(port):
                await asyncio.sleep(0.05)
            large = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "timeout": 300}
        config.write_text(json.dumps({"mcpServers": {"large": large, "small": small}}))
        stops.write_bytes(bytes(8))
        options = ["--config", str(config), "--database", str(folder / "catalog.db"), "--encoder", "none", *row.options]
        options += ["--call-timeout", "300"]
        port = free_port()
        options += ["--http", f"127.0.0.1:{port}"] if row.client == "http" else []
        pipe = asyncio.subprocess.PIPE if row.client == "stdio" else None
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(GATEWAY), str(stops), "serve", "--alone", *options),
            stdin=pipe,
            stdout=pipe,
            stderr=None if os.environ.get("LARGE_STACKS") else asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        client: Client
        others: Client
        if row.client == "stdio":
            client = others = pipes = StdioClient(process)
            reading = asyncio.create_task(pipes.read())
            stack.callback(reading.cancel)
            await client.ask("initialize", HELLO)
            await pipes.tell("notifications/initialized")
        else:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=300))
            while not is_listening(port):
                await asyncio.sleep(0.05)
            sessions = [HttpClient(f"http://127.0.0.1:{port}/mcp", http) for _ in range(2)]
            for session in sessions:
                await session.ask("initialize", HELLO)
                await session.tell("notifications/initialized")
            client, others = sessions
        yield client, others, Watched(process, stops)


class OtherCalls:
    """Makes one call after another, and remembers how long the slowest took."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self.slowest = 0.0
        self.count = 0

    async def calling(self) -> None:
        while True:
            started = time.perf_counter()
            await self._client.ask("tools/call", {"name": self._name, "arguments": {"size": 1}})
            self.slowest = max(self.slowest, (time.perf_counter() - started) * 1_000)
            self.count += 1
            await asyncio.sleep(0.005)


async def measure(row: Row, size: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(row, Path(folder)) as (client, others, watched):
            asked = f"large__{row.kind}"
            await until_there(client, "large__prepare", {"kind": row.kind, "size": size})
            await until_there(others, "small__echo", {})
            calling = OtherCalls(others, "small__echo")
            task = asyncio.create_task(calling.calling())
            work: Callable[[], Any] = lambda: client.ask("tools/call", {"name": asked, "arguments": {}})  # noqa: E731
            if row.then:
                about = json.loads(await work())["result"]["_meta"]["mcp-optimizer/result"]
                arguments = {"result_id": about["resultId"], **json.loads(row.then)}
                work = lambda: client.ask("tools/call", {"name": "read_result", "arguments": arguments})  # noqa: E731
                await asyncio.sleep(1)
            watched.forget()
            calling.slowest = 0
            await asyncio.sleep(IDLE_SECONDS)
            idle = (calling.slowest, watched.longest_stop)
            watched.forget()
            calling.slowest = calling.count = 0
            before = watched.memory("VmRSS")
            started = time.perf_counter()
            said = await work()
            taken = time.perf_counter() - started
            # Freeing memory afterwards counts as well.
            await asyncio.sleep(0.3)
            growth, stop, slowest = watched.memory("VmHWM") - before, watched.longest_stop, calling.slowest
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            check(row, said, size)
    cells = [row.name, f"{taken:.1f} s", f"{growth:.0f} MB ({growth * 1e6 / size:.1f} x)", f"{slowest:.0f} ms"]
    cells += [f"{idle[0]:.0f} ms", f"{stop:.0f} ms", f"{idle[1]:.0f} ms"]
    return f"| {' | '.join(cells)} |"


async def until_there(client: Client, name: str, arguments: dict[str, Any]) -> None:
    """Wait until a tool can be called: the gateway does not wait for its servers."""
    async with asyncio.timeout(120):
        while b'"isError":true' in (said := await client.ask("tools/call", {"name": name, "arguments": arguments})) or (
            b'"error"' in said
        ):
            await asyncio.sleep(0.1)


def check(row: Row, said: bytearray, size: int) -> None:
    """Assert that what arrived is what was sent, or was cut and says so."""
    message = json.loads(said)
    assert "result" in message, message
    answered = message["result"]
    assert not answered.get("isError"), answered["content"][0]["text"][:500]
    assert answered["_meta"]["tokens"], "every result says what it cost"
    if row.is_whole and row.kind != "image":
        sent = result(row.kind, size)
        assert digest(answered["content"]) == digest(sent["content"])
        assert digest(answered.get("structuredContent")) == digest(sent.get("structuredContent"))
    elif not row.then and row.kind != "image":
        assert answered["_meta"]["mcp-optimizer/result"]["resultId"]
        assert len(said) < 1_000_000


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write the table in {RESULT.name}")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--size", type=int, default=SIZE)
    options = parser.parse_args()
    lines = [
        "| result, and its road | took | gateway grew by | slowest other call | the same without | longest stop of the "
        "loop | the same without |",
        f"|{'---|' * 7}",
    ]
    for row in ROWS:
        if options.only in row.name:
            lines.append(asyncio.run(measure(row, options.size)))
            print(lines[-1], flush=True)
    if options.write:
        # The text above the table is written by hand, and stays.
        head = RESULT.read_text(encoding="utf-8").partition("| result")[0]
        RESULT.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
