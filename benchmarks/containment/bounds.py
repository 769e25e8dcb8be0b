"""Attacks on every bound: how far memory rises, and how long other calls wait.

    python -m benchmarks.containment.bounds [--only TEXT] [--write]

Each row gets a fresh gateway, in a process that may use 6 GB at most, and a witness that keeps calling an honest
server. Must hold: memory rises by at most 200 MB more than the bound's own size, and no call of the witness waits more
than 100 ms longer than the longest did without an attack.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from tests.conftest import ROOT
from tests.hostile.case import stdio_entry
from tests.hostile.client_inputs import ClientInput
from tests.hostile.deeds import BEGIN, HELLO, STDIO, STDIO_MODERN
from tests.hostile.gateway import GatewayProcess, HttpWitness
from tests.hostile.hostile_client import HostileClient
from tests.hostile.inputs import INPUTS
from tests.hostile.mode import GOOD, FileMode
from tests.hostile.witness import NAME, watching, witness_server

from benchmarks.clients import PlainClient
from benchmarks.containment.bounds_rows import HOSTILE, ROWS, Row
from benchmarks.paths import RESULTS
from benchmarks.processes import children, free_port

RESULT = RESULTS / "bounds.md"
_MORE_MEMORY = 200.0
_MORE_WAIT = 0.1
_PIECE = 1_000_000
_SHORT = 1_000
"""Characters; shorter responses are shown in the table."""
_IDLE = 3.0
"""Seconds of watching the witness before the attack."""


@dataclass(frozen=True)
class Measured:
    """One row of the table."""

    row: Row
    base: float
    rise: float
    idle: float
    wait: float
    stop: float
    """The longest stop of the gateway's event loop: its own share of the waiting."""
    lost: int
    fate: str

    @property
    def problems(self) -> list[str]:
        found = {
            f"{self.lost} calls of others were lost": self.lost,
            "memory": self.rise > self.row.megabytes + _MORE_MEMORY,
            "waiting": self.wait > self.idle + _MORE_WAIT,
        }
        return [text for text, is_so in found.items() if is_so]


class Arena:
    """A gateway, its witness, and a hostile server that is told how to behave."""

    def __init__(self, row: Row, folder: Path) -> None:
        self._row = row
        self._folder = folder
        self._requests = list(row.requests()) if row.requests is not None else []
        self._mode = folder / "mode"
        FileMode.show(self._mode, GOOD)
        FileMode.log_of(self._mode).touch()

    async def measure(self) -> Measured:
        async with self._hostile_server() as entry, httpx2.AsyncClient(timeout=30) as http:
            gateway = self._start(entry)
            try:
                return await self._attack(gateway, http)
            finally:
                gateway.stop()

    def _start(self, entry: dict[str, Any]) -> GatewayProcess:
        entries = {NAME: witness_server(), HOSTILE: {**entry, "timeout": 5}}
        config = self._folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        settings = self._folder / "settings.toml"
        settings.write_text("[limits]\n" + "".join(f"{name} = {value}\n" for name, value in self._row.set_to.items()))
        os.environ["MCP_OPTIMIZER_SETTINGS"] = str(settings)
        return GatewayProcess(self._folder, config, "--start-timeout=10")

    @asynccontextmanager
    async def _hostile_server(self) -> AsyncIterator[dict[str, Any]]:
        options = ("--scale", self._row.scale, "--nice")
        if self._row.wire in (STDIO, STDIO_MODERN):
            yield stdio_entry(self._mode, *options, is_modern=self._row.wire == STDIO_MODERN)
            return
        port = free_port()
        command = ["-m", "tests.hostile.http_server", self._row.wire, str(port), str(self._mode), *map(str, options)]
        process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
        kind, path = ("sse", "sse") if self._row.wire == "sse" else ("http", "mcp")
        try:
            yield {"type": kind, "url": f"http://127.0.0.1:{port}/{path}"}
        finally:
            process.kill()
            await process.wait()

    async def _attack(self, gateway: GatewayProcess, http: httpx2.AsyncClient) -> Measured:
        witness = HttpWitness(http, gateway.url, is_modern=False)
        await witness.connect()
        await witness.until_up()
        # After a first call, both servers are up and everything that loads late is loaded.
        client = PlainClient(http, gateway.url)
        await client.connect()
        await self._until_called(client)
        async with watching(witness):
            await asyncio.sleep(1)
            witness.longest = 0.0
            await asyncio.sleep(_IDLE)
            idle, witness.longest = witness.longest, 0.0
            base = gateway.memory()
            gateway.forget_peak()
            await gateway.report()
            fate = await self._throw(gateway, client)
            # A call that is waiting now waits because of the attack.
            await asyncio.sleep(0.5)
            wait = witness.longest
            stop = float((await gateway.report()).get("longest_stop", 0.0))
        rise = gateway.memory("VmHWM") - base
        if not gateway.is_alive:
            fate = f"THE GATEWAY ENDED with {gateway.process.returncode}"
        return Measured(self._row, base, rise, idle, wait, stop, len(witness.lost), fate)

    async def _until_called(self, client: PlainClient) -> None:
        for _ in range(200):
            if "again" in await self._call(client, "repeat", {"value": "again"}):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the hostile server did not start, although it was told to behave")

    async def _call(self, client: PlainClient, tool: str, parameters: dict[str, Any]) -> str:
        arguments = {"tool_name": tool, "server_name": HOSTILE, "parameters": parameters}
        return await self._ask(client, "tools/call", {"name": "call_tool", "arguments": arguments})

    async def _ask(self, client: PlainClient, method: str, params: dict[str, Any]) -> str:
        try:
            return json.dumps(await client.request(1, method, params))
        except (httpx2.HTTPError, AssertionError, ValueError) as error:
            return repr(error)

    async def _throw(self, gateway: GatewayProcess, client: PlainClient) -> str:
        row = self._row
        if self._requests:
            return await self._throw_requests(gateway, self._requests)
        FileMode.show(self._mode, row.input)
        if INPUTS[row.input].at in (BEGIN, HELLO, "tools/list", "stream"):
            self._restart(gateway)
        until, fate = time.monotonic() + row.seconds, ""
        while time.monotonic() < until and gateway.is_alive:
            began = time.monotonic()
            if row.ask is None:
                fate = _fate(await self._call(client, "poke", {"value": row.argument}))
            else:
                answer = await self._ask(client, *row.ask)
                shown = f": {_fate(answer)}" if len(answer) < _SHORT else ""
                fate = f"{row.ask[0]} took {time.monotonic() - began:.1f} s, {len(answer):,} characters{shown}"
            await asyncio.sleep(0.1)
        return fate

    def _restart(self, gateway: GatewayProcess) -> None:
        """Kill the server, because some attacks happen when it starts."""
        for child in children(gateway.pid):
            with contextlib.suppress(OSError):
                if b"stdio_server" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)

    async def _throw_requests(self, gateway: GatewayProcess, requests: list[ClientInput]) -> str:
        hostile = HostileClient(gateway.origin)
        await hostile.connect()
        seen: Counter[str] = Counter()
        for shown in requests:
            try:
                if shown.raw:
                    # In a thread, because sending hundreds of megabytes here would delay the witness on our side.
                    head = await asyncio.to_thread(_blast, gateway.port, shown.raw)
                else:
                    head = await hostile.answer(shown)
            except (TimeoutError, OSError):
                head = ""
            seen[head.partition("\r\n")[0].removeprefix("HTTP/1.1 ") or "no answer, or cut"] += 1
        return ", ".join(f"{count} x {status}" for status, count in seen.most_common(4))


def _blast(port: int, data: bytes) -> str:
    """Send as much as the gateway takes; return the head of its response."""
    rest = memoryview(data)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[connection.send(rest[:_PIECE]) :]
        return connection.recv(4_096).decode("latin-1")


def _fate(answer: str) -> str:
    """What the caller was told, abbreviated."""
    try:
        message = json.loads(answer)
    except ValueError:
        return answer[:120]
    if "error" in message:
        text = str(message["error"].get("message"))
    else:
        text = str((message["result"].get("content") or [{}])[0].get("text"))
        text = text if message["result"].get("isError") or len(text) < _SHORT else "answered"
    return text if len(text) < 160 else f"{text[:160]}... ({len(text):,} characters)"


def table(measured: list[Measured]) -> str:
    lines = [
        "| bound | thrown at it | its size MB | memory rose MB | others waited ms (before) | loop stood still ms "
        "| the offender |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in measured:
        row = one.row
        mark = f" **{', '.join(one.problems)}**" if one.problems else ""
        fate = " ".join(one.fate.split()).replace("|", "/")
        lines.append(
            f"| `{row.bound}` | {row.thrown} | {row.megabytes:g} | {max(0.0, one.rise):.0f} "
            f"| {1_000 * one.wait:.0f} ({1_000 * one.idle:.0f}) | {1_000 * one.stop:.0f} | {fate}{mark} |"
        )
    return "\n".join(lines)


async def measure_all(rows: Iterable[Row], told: Callable[[Measured], Awaitable[None]]) -> list[Measured]:
    measured = []
    for row in rows:
        with tempfile.TemporaryDirectory() as folder:
            measured.append(await Arena(row, Path(folder)).measure())
        await told(measured[-1])
    return measured


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose bound or description contains this")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in f"{row.bound} {row.thrown}"]

    async def told(one: Measured) -> None:
        print(table([one]).splitlines()[-1], flush=True)

    measured = await measure_all(rows, told)
    found = [f"{one.row.bound}, {one.row.thrown}: {', '.join(one.problems)}" for one in measured if one.problems]
    print(*found, sep="\n")
    if options.write:
        about = (
            "# Bounds\n\n`python -m benchmarks.containment.bounds`: a fresh gateway for each row, and a witness that "
            "calls another server all the time. Memory: the highest resident size during the attack, above that before "
            "it; it must rise by at most 200 MB more than the bound's own size. Waiting: the longest call of the "
            "witness during the attack, and before it; at most 100 ms more. The loop is the gateway's event loop.\n\n"
        )
        verdict = "All hold." if not found else "\n".join(found)
        RESULT.write_text(f"{about}{table(measured)}\n\n{verdict}\n", encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
