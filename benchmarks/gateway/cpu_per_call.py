"""Processor time of a gateway for each call over HTTP, and whose code it goes to.

    python -m benchmarks.gateway.cpu_per_call [--against FOLDER] [--rounds 6] [--calls 500] [--at-once 1] [--modern]

The echo server is a child process, the clients send plain HTTP, each one call after the other. First the gateways take
turns in rounds, and what the system counts as their processor time is divided by their calls. Then each runs again
under a sampling profiler (`--sampled`, one sample a millisecond of processor time), which gives each sample to the
innermost code that is not the standard library's, or to asyncio where nothing else runs. The loop (uvloop) has no
frames: what it and the system take between two callbacks is seen only when the next callback begins, and is given to
asyncio, not to the callback. Processor time depends less on other load than the time on the clock; ratios come from one
run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import runpy
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from dis import opmap
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2

from benchmarks.clients import PlainClient, until_ready
from benchmarks.paths import ECHO_SERVER
from benchmarks.processes import free_port, processor_seconds

ROOT = Path(__file__).parents[2]
_INTERVAL = 0.001
_RESUME = opmap["RESUME"]
_GROUPS = ("anyio", "httpx2", "httpcore2", "h11", "starlette", "uvicorn", "sse_starlette", "pydantic", "tiktoken")


def group_of(frame: FrameType | None) -> str:
    """Whose code runs: the innermost frame of a package; "asyncio" if there is none."""
    if frame is not None and begins_a_callback(frame):
        return "asyncio"
    while frame is not None:
        name = frame.f_code.co_filename
        if "/mcp_optimizer/" in name:
            return "ours"
        if "/site-packages/" in name:
            package = name.partition("/site-packages/")[2].partition("/")[0]
            return "SDK" if package.startswith("mcp") else package if package in _GROUPS else "other packages"
        if "/asyncio/" in name:
            return "asyncio"
        frame = frame.f_back
    return "asyncio"


def begins_a_callback(frame: FrameType) -> bool:
    """Whether the loop has called this function, which has not done anything yet."""
    caller = frame.f_back
    is_from_loop = caller is not None and caller.f_code.co_filename.endswith("/asyncio/runners.py")
    return is_from_loop and frame.f_code.co_code[frame.f_lasti] == _RESUME


def sampled(out: str, arguments: list[str]) -> None:
    """Run the gateway in this process; SIGUSR2 writes how many samples each group had since SIGUSR1."""
    samples: Counter[str] = Counter()
    lines: Counter[str] = Counter()

    def take(_signal: int, frame: FrameType | None) -> None:
        group = group_of(frame)
        samples[group] += 1
        if group == "ours":
            while frame is not None and "/mcp_optimizer/" not in frame.f_code.co_filename:
                frame = frame.f_back
            assert frame is not None
            lines[f"{frame.f_code.co_filename.rpartition('/mcp_optimizer/')[2]}:{frame.f_code.co_name}"] += 1

    def begin(_signal: int, _frame: FrameType | None) -> None:
        samples.clear()
        lines.clear()

    def write(_signal: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(out).write_text(json.dumps({"groups": samples, "ours": lines.most_common(25)}), encoding="utf-8")

    signal.signal(signal.SIGPROF, take)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, write)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
    sys.argv = ["mcp-optimizer", *arguments]
    runpy.run_module("mcp_optimizer", run_name="__main__", alter_sys=True)


@dataclass
class Side:
    """A gateway of one checkout."""

    name: str
    pid: int
    clients: list[PlainClient]
    seconds: list[float] = field(default_factory=list)

    async def calls(self, count: int) -> None:
        numbers = iter(range(count))

        async def caller(client: PlainClient) -> None:
            for number in numbers:
                await client.call(10 + number)

        before = processor_seconds(self.pid)
        await asyncio.gather(*map(caller, self.clients))
        self.seconds.append((processor_seconds(self.pid) - before) / count)

    @property
    def milliseconds(self) -> float:
        return 1_000 * sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True)
class Clients:
    """Who calls at the same time."""

    number: int
    are_modern: bool


@asynccontextmanager
async def gateway(checkout: Path, folder: Path, how: Clients, out: Path | None = None) -> AsyncIterator[Side]:
    port = free_port()
    config = folder / "mcp.json"
    entry = {"command": sys.executable, "args": [str(ECHO_SERVER)]}
    config.write_text(json.dumps({"mcpServers": {"echo": entry}}), encoding="utf-8")
    options = ["serve", "--config", str(config), "--mode", "transparent", "--http", f"127.0.0.1:{port}"]
    options += ["--database", str(folder / f"{port}.db"), "--max-rows", "0", "--max-tokens", "0"]
    start = [str(Path(__file__)), "--sampled", str(out)] if out else ["-m", "mcp_optimizer"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(ROOT)])}
    quiet = asyncio.subprocess.DEVNULL
    started = await asyncio.create_subprocess_exec(
        sys.executable, *start, *options, env=environment, stdout=quiet, stderr=quiet
    )
    try:
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(60)) as http:
            await until_ready(http, port)
            address = f"http://127.0.0.1:{port}/mcp"
            clients = [PlainClient(http, address, is_modern=how.are_modern) for _ in range(how.number)]
            for client in clients:
                await client.connect()
            yield Side(str(checkout), started.pid, clients)
    finally:
        started.terminate()
        await started.wait()


async def compare(checkouts: list[Path], rounds: int, calls: int, folder: Path, how: Clients) -> list[Side]:
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(gateway(checkout, folder, how)) for checkout in checkouts]
        for side in sides:
            await side.calls(calls)
            side.seconds.clear()
        for _ in range(rounds):
            for side in sides:
                await side.calls(calls)
    return sides


async def profile(checkout: Path, calls: int, folder: Path, how: Clients) -> dict[str, Any]:
    out = folder / "samples.json"
    async with gateway(checkout, folder, how, out) as side:
        await side.calls(200)
        os.kill(side.pid, signal.SIGUSR1)
        await side.calls(calls)
        os.kill(side.pid, signal.SIGUSR2)
        await side.calls(1)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def shares(found: dict[str, Any], milliseconds: float) -> str:
    total = sum(found["groups"].values())
    parts = sorted(found["groups"].items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {count / total * milliseconds:.3f} ({count / total:.0%})" for name, count in parts)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=1, help="clients that call at the same time")
    parser.add_argument("--modern", action="store_true", help="modern clients instead of legacy ones")
    parser.add_argument("--lines", action="store_true", help="also print the functions of ours that take most")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against] if options.against else [])]
    with tempfile.TemporaryDirectory() as place:
        folder, how = Path(place), Clients(options.at_once, options.modern)
        for side in await compare(checkouts, options.rounds, options.calls, folder, how):
            print(f"{side.name}: {side.milliseconds:.3f} ms a call")
            found = await profile(Path(side.name), 2 * options.calls, folder, how)
            print(f"  {shares(found, side.milliseconds)}")
            if options.lines:
                print("\n".join(f"    {count:5} {name}" for name, count in found["ours"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sampled"]:
        sampled(sys.argv[2], sys.argv[3:])
    else:
        asyncio.run(main())
