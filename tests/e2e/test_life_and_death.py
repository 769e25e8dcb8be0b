"""However a gateway ends, every process that it started ends soon after.

Up to thirty stubborn servers: some ignore the end of their stdin or SIGTERM, some start further processes, some of
those in their own sessions. Remaining processes are found by a marker in their arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from benchmarks.clients import PlainClient

from mcp_optimizer.upstream.transports.processes import depth
from tests.conftest import Entry, WriteServers
from tests.e2e.running import COMMAND
from tests.e2e.stopping import ended_well, gauge, says
from tests.waiting import until

STUBBORN = Path(__file__).parents[1] / "servers" / "stubborn.py"
MANNERS = [
    "none",
    "eof",
    "term",
    "child",
    "child,eof",
    "child,term",
    "session",
    "session,eof",
    "session,term",
    "orphan",
]
SHUTDOWN = 1.0
SWEPT = 15.0
"""Seconds for processes to end after their gateway was killed: two grace periods of 0.5 s; a process that is left over
stays for ever, so that there is time for a machine that pauses."""
QUICK = {"name": "call_tool", "arguments": {"tool_name": "echo", "server_name": "s0", "parameters": {"value": "x"}}}

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux' /proc")


@pytest.fixture
def marker() -> Iterator[str]:
    """A text for the arguments of all processes of a test. Those still running after the test are killed."""
    mark = f"marker-{uuid.uuid4().hex}"
    yield mark
    for number in left(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def left(mark: str) -> list[int]:
    """The processes that have the marker in their arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def depths(mark: str) -> set[int]:
    """How deep each of them is nested. A process that is about to become another one still has its parent's depth."""
    found = set()
    for number in left(mark):
        with contextlib.suppress(OSError):
            entries = Path(f"/proc/{number}/environ").read_bytes().decode(errors="replace").split("\0")
            found.add(depth(dict(entry.partition("=")[::2] for entry in entries)))
    return found


def stubborn(count: int, mark: str) -> dict[str, Entry]:
    manners = [MANNERS[number % len(MANNERS)] for number in range(count)]
    return {
        f"s{number}": {"command": sys.executable, "args": [str(STUBBORN), f"s{number}", manner, mark]}
        for number, manner in enumerate(manners)
    }


@asynccontextmanager
async def gateway(
    config: Path, transport: str, shutdown: float = SHUTDOWN, *, busy: int = 0
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A gateway whose servers are all up, and its address. `busy`: how many of them have a long call in progress."""
    options = ["--config", str(config), "--database", "none", "--encoder", "none", "--shutdown-timeout", str(shutdown)]
    options += ["--http", "127.0.0.1:0"] if transport == "http" else []
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", *options, "--log-level", "error", stdin=pipe, stdout=pipe, stderr=pipe
    )
    address = ""
    calling: list[asyncio.Task[None]] = []
    try:
        if transport == "http":
            address = await until_ready(process)
            calling = [asyncio.create_task(call_over_http(address, busy))]
            async with httpx2.AsyncClient(timeout=30) as http:
                await until(lambda: gauge(http, f"{address}/mcp", "calls_in_flight", busy), timeout=30)
        else:
            await until_listed(process)
            for number in range(busy):
                await tell(process, {"id": f"long {number}", "method": "tools/call", "params": long_call(number)})
            if busy:
                # By the answer to this, the gateway has also begun what was sent before.
                await asked(process, {"id": "begun", "method": "tools/call", "params": QUICK})
        yield process, address
    finally:
        for task in calling:
            task.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


def long_call(number: int) -> dict[str, Any]:
    arguments = {"tool_name": "sleep", "server_name": f"s{number}", "parameters": {"seconds": 60}}
    return {"name": "call_tool", "arguments": arguments}


async def call_over_http(address: str, busy: int) -> None:
    async with httpx2.AsyncClient(timeout=90) as http:
        client = PlainClient(http, f"{address}/mcp", is_modern=True)
        await client.connect()
        calls = (client.attempt(number, "tools/call", long_call(number)) for number in range(busy))
        await asyncio.gather(*calls)


async def until_ready(process: asyncio.subprocess.Process) -> str:
    """The gateway's address, once a tool can be called."""
    assert process.stderr is not None
    line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
    address = line.split(" at ")[1].split("/mcp")[0]
    async with httpx2.AsyncClient(timeout=30) as http, asyncio.timeout(60):
        while (await http.get(f"{address}/ready")).status_code != 200:
            await asyncio.sleep(0.1)
    return address


async def until_listed(process: asyncio.subprocess.Process) -> None:
    """List tools as a legacy client until no server is missing."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await asked(process, {"id": 0, "method": "initialize", "params": hello})
    await tell(process, {"method": "notifications/initialized"})
    async with asyncio.timeout(60):
        for number in range(1, 1_000):
            call = {"name": "list_tools", "arguments": {}}
            answer = await asked(process, {"id": number, "method": "tools/call", "params": call})
            if "note" not in json.loads(answer["result"]["content"][0]["text"]):
                return
            await asyncio.sleep(0.1)


async def tell(process: asyncio.subprocess.Process, message: dict[str, object]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await process.stdin.drain()


async def asked(process: asyncio.subprocess.Process, message: dict[str, object]) -> Any:
    assert process.stdout is not None
    await tell(process, message)
    while True:
        line = await process.stdout.readline()
        assert line, "the gateway ended"
        answer = json.loads(line)
        if answer.get("id") == message["id"]:
            return answer


async def until_refused(process: asyncio.subprocess.Process) -> dict[object, str]:
    """Call over stdio until the gateway refuses because it is stopping. Returns all its answers, by their ids."""
    assert process.stdout is not None
    answers: dict[object, str] = {}
    names = (f"late {number}" for number in itertools.count())
    async with asyncio.timeout(20):
        # The first may come before the signal is noticed.
        while not any("The gateway is stopping. Call again when it is back" in one for one in answers.values()):
            await tell(process, {"id": (name := next(names)), "method": "tools/call", "params": QUICK})
            while name not in answers:
                line = await process.stdout.readline()
                assert line, "the gateway ended"
                answers[json.loads(line).get("id")] = line.decode()
    return answers


async def until_gone(mark: str, seconds: float) -> float:
    """Wait until no process with the marker is left. Returns the seconds that it took."""
    started = time.monotonic()
    while left(mark):
        if time.monotonic() - started > seconds:
            pytest.fail(f"{len(left(mark))} processes are left after {seconds} s")
        await asyncio.sleep(0.05)
    return time.monotonic() - started


@pytest.mark.promise("no-server-outlives")
@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_thirty_servers_of_all_manners_end_with_a_gateway_that_is_killed(
    write_servers: WriteServers, marker: str, transport: str
) -> None:
    config = write_servers(stubborn(30, marker))
    async with gateway(config, transport, busy=30) as (process, _):
        assert len(left(marker)) >= 30
        process.kill()
        await process.wait()
        gone = await until_gone(marker, SWEPT)
    print(f"{transport}: all gone {gone:.2f} s after kill -9")


@pytest.mark.promise("stop-on-time")
@pytest.mark.slow
@pytest.mark.parametrize(("transport", "number"), [("stdio", signal.SIGINT), ("http", signal.SIGTERM)])
async def test_thirty_servers_of_all_manners_end_with_a_gateway_that_is_stopped_and_soon(
    write_servers: WriteServers, marker: str, transport: str, number: signal.Signals
) -> None:
    config = write_servers(stubborn(30, marker))
    async with gateway(config, transport, busy=30) as (process, _):
        assert len(left(marker)) >= 30
        started = time.monotonic()
        process.send_signal(number)
        code = await asyncio.wait_for(process.wait(), 30)
        taken = time.monotonic() - started
        await until_gone(marker, SWEPT)
    print(f"{transport}: stopped {taken:.2f} s after {number.name}, code {code}")
    assert ended_well(code, taken, SHUTDOWN)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_second_signal_ends_the_gateway_and_its_servers_at_once(
    write_servers: WriteServers, marker: str, transport: str
) -> None:
    config = write_servers(stubborn(10, marker))
    async with gateway(config, transport, shutdown=60, busy=1) as (process, address), httpx2.AsyncClient() as http:
        process.send_signal(signal.SIGTERM)
        # Of two signals that come before the first is taken, the system delivers one.
        if transport == "http":
            await until(lambda: says(http, f"{address}/ready", "stopping"))
        else:
            await until_refused(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 128 + signal.SIGTERM
        await until_gone(marker, SWEPT)


async def test_a_call_that_is_interrupted_on_stdio_says_that_the_gateway_was_stopped(
    write_servers: WriteServers, marker: str
) -> None:
    shutdown = 6.0
    async with gateway(write_servers(stubborn(1, marker)), "stdio", shutdown, busy=1) as (process, _):
        assert process.stdout is not None
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        answers = await until_refused(process)
        async for line in process.stdout:
            answers[json.loads(line).get("id")] = line.decode()
        code = await process.wait()
        taken = time.monotonic() - started
    assert ended_well(code, taken, shutdown)
    # A gateway that its clock ended may have had no time to answer.
    assert code == 1 or "The gateway stopped in the middle of the call" in answers["long 0"]


@pytest.mark.slow
async def test_a_script_that_starts_the_gateway_inside_itself_is_stopped_by_its_depth(
    write_servers: WriteServers, tmp_path: Path, marker: str
) -> None:
    script = tmp_path / f"{marker}.sh"
    config = write_servers({"wrapped": {"command": "/bin/sh", "args": [str(script)]}})
    options = "--database none --encoder none --restart-pause 60"
    script.write_text(f"exec {sys.executable} -m mcp_optimizer serve --config {config} {options} # {marker}\n")
    inside = f"serve\0--config\0{config}"
    seen = set[int]()

    async def nested() -> None:
        now = set[int]()
        # The fourth gateway, three deep, reports the nesting and exits.
        while not (3 in seen and now == {0, 1, 2}):
            now = depths(inside)
            seen.update(now)
            await asyncio.sleep(0.05)

    # From the beginning, because the fourth may have come and gone when the first lists its tools.
    looking = asyncio.create_task(nested())
    async with gateway(config, "stdio"):
        await asyncio.wait_for(looking, 60)
    assert max(seen) == 3
    await until_gone(inside, 10)
