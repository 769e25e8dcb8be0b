"""What recording costs: calls with history, metrics and the dashboard on, and off.

    python -m benchmarks.gateway.recording [--rounds 30] [--calls 400]

Both take turns in one run, so that other load on the machine affects them alike. Absolute times depend on the machine;
what counts is the ratio, of wall time and of the process's own processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import Client, StdioServerParameters

from benchmarks.paths import PLAIN_SERVER
from benchmarks.processes import processor_seconds
from mcp_optimizer import Optimizer
from mcp_optimizer.domain.caller import Caller

AT_ONCE = 16


async def call_many(optimizer: Optimizer, calls: int) -> tuple[float, float]:
    """Seconds for this many calls, sixteen at a time: wall time, and processor time of this process."""
    value = {"value": "x" * 1_000}
    caller = Caller("bench", "bench")

    async def one_after_the_other(count: int) -> None:
        for _ in range(count):
            with optimizer.accounts.answering("echo", {}, caller) as account:
                account.reply(await optimizer.gateway.call("echo", value, caller=caller))

    wall, own = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one_after_the_other(calls // AT_ONCE) for _ in range(AT_ONCE)))
    return time.perf_counter() - wall, time.process_time() - own


Work = Callable[[], Awaitable[tuple[float, float]]]


async def compared(with_it: Work, without: Work, rounds: int) -> tuple[float, float, float]:
    """Seconds without; then the ratio of with to without, in wall time (the median) and processor time (all rounds)."""
    await with_it()
    await without()
    offs, walls = [], []
    used_with = used_without = 0.0
    for number in range(rounds):
        if number % 2:
            on, off = await with_it(), await without()
        else:
            off, on = await without(), await with_it()
        offs.append(off[0])
        walls.append(on[0] / off[0])
        used_with += on[1]
        used_without += off[1]
    return statistics.median(offs), statistics.median(walls), used_with / used_without


async def through_the_library(config: Path, folder: Path, rounds: int, calls: int) -> None:
    with_it = Optimizer.from_config(config, database=str(folder / "on.db"), encoder="none")
    without = Optimizer.from_config(config, database=str(folder / "off.db"), encoder="none", history=False)
    async with with_it, without:
        # As in `serve --http`, where Prometheus and the dashboard listen as well.
        with_it.http_app("127.0.0.1")
        off, wall, own = await compared(lambda: call_many(with_it, calls), lambda: call_many(without, calls), rounds)
        events = with_it.recorder.written + with_it.recorder.waiting
    print(f"library: calls a second, not recorded   {calls / off:8,.0f}")
    print(f"library: time, recorded against not     {wall:8.3f}   (processor time {own:.3f})")
    print(f"library: events recorded                {events:8,}   ({with_it.recorder.dropped} dropped)")


def process_with(argument: str) -> int:
    """The id of the process that was started with this argument. Linux only."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
    raise RuntimeError(f"no process was started with {argument}")


async def through_the_gateway(config: Path, folder: Path, rounds: int, calls: int) -> None:
    """The SDK's client over stdio, as users run it; processor time is the gateway's."""
    serve = ["-m", "mcp_optimizer", "serve", "--alone", "--config", str(config), "--encoder", "none"]
    on = [*serve, "--database", str(folder / "on2.db")]
    off = [*serve, "--database", str(folder / "off2.db"), "--no-history"]

    async def many(client: Client, gateway: int) -> tuple[float, float]:
        arguments = {"tool_name": "echo", "parameters": {"value": "x" * 1_000}}

        async def one_after_the_other() -> None:
            for _ in range(calls // AT_ONCE):
                await client.call_tool("call_tool", arguments)

        started, used = time.perf_counter(), processor_seconds(gateway)
        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
        return time.perf_counter() - started, processor_seconds(gateway) - used

    async with (
        Client(StdioServerParameters(command=sys.executable, args=on), mode="legacy") as recorded,
        Client(StdioServerParameters(command=sys.executable, args=off), mode="legacy") as plain,
    ):
        for client in (recorded, plain):
            while (await client.call_tool("call_tool", {"tool_name": "echo", "parameters": {}})).is_error:
                await asyncio.sleep(0.05)
        one, other = process_with(on[-1]), process_with(off[-2])
        seconds, wall, own = await compared(lambda: many(recorded, one), lambda: many(plain, other), rounds)
    print(f"gateway: calls a second, not recorded   {calls / seconds:8,.0f}")
    print(f"gateway: time, recorded against not     {wall:8.3f}   (processor time {own:.3f}; target < 1.05)")


async def main(rounds: int, calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        entry = {"command": sys.executable, "args": [str(PLAIN_SERVER), "plain"]}
        config.write_text(json.dumps({"mcpServers": {"plain": entry}}), encoding="utf-8")
        await through_the_gateway(config, Path(folder), rounds, calls)
        await through_the_library(config, Path(folder), rounds, calls)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=400)
    options = parser.parse_args()
    asyncio.run(main(options.rounds, options.calls))
