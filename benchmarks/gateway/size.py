"""How long the event loop stops with 5,000 servers and 200,000 tools in one gateway.

    python -m benchmarks.gateway.size [--servers 5000] [--each 40] [--encoder none|fake] [--database none|sqlite]
                                      [--code FOLDER ...]

Each `--code` is the checkout of some version, measured in a process of its own after the one before; the first is
usually this one. Five thousand real processes fit on no machine, so the servers are simulated at the lowest seam that
the product has: `Connect` of the pool. Behind it everything is the product's own: the handshake, reading the listing's
JSON, counting, naming, indexing, searching. Each server answers with bytes out of one file on disk, so that the
listings take no memory here. `--encoder fake` makes random vectors as wide as the bundled encoder's, at no cost: the
bundled one would embed 200,000 tools in half an hour.

A stop is by how much a task wakes too late that sleeps for a millisecond at a time; "work" is how much of that time
the process worked, which leaves out what other processes took. It is the upper bound of what the stop would be on an
idle machine, unless several threads work outside of the interpreter's lock.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.gateway.simulated_servers import FakeEncoder, Listings, Simulated, write_listings
from benchmarks.processes import resident_mb
from benchmarks.stops import TICK, Stops, quantile

PROBE = 0.25
"""Seconds between two questions whether the gateway is ready."""
REQUESTS = (
    "list all my calendar events for tomorrow",
    "create a github issue",
    "search files by name",
    "send a message to a channel",
    "query the sales database",
    "delete a branch",
    "upload a picture to the drive",
    "show the logs of a deployment",
)


# What is measured.


def figures_of(stops: Stops) -> dict[str, float]:
    whole, work = stops.whole, stops.work
    return {
        "longest_ms": whole[-1] * 1e3,
        "longest_work_ms": work[-1] * 1e3,
        "p99_ms": quantile(whole, 0.99) * 1e3,
        "p99_work_ms": quantile(work, 0.99) * 1e3,
        "over_200_ms": sum(stop > 0.2 for stop in work),
    }


@asynccontextmanager
async def watched(figures: dict[str, Any], what: str) -> AsyncIterator[None]:
    stops, started, at_work = Stops(), time.perf_counter(), time.process_time()
    watching = asyncio.create_task(stops.watch())
    yield
    # The last stop, too.
    await asyncio.sleep(2 * TICK)
    watching.cancel()
    seconds, work = time.perf_counter() - started, time.process_time() - at_work
    figures[what] = {"seconds": seconds, "work_s": work, "mb": resident_mb(), **figures_of(stops)}
    print(f"  {what}: {json.dumps({key: round(value, 1) for key, value in figures[what].items()})}", file=sys.stderr)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """In the process of one version."""
    from mcp_optimizer import Optimizer
    from mcp_optimizer.cli.serve import make_room
    from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
    from mcp_optimizer.config.settings import load_settings
    from mcp_optimizer.runtime.memory import kept_tidy
    from mcp_optimizer.search.encoders import choose
    from mcp_optimizer.upstream import pool

    make_room()
    servers = Simulated(Listings(Path(options.listings)))
    # In the versions that are measured, these are the only two names by which the parts reach them.
    vars(pool)["connecting"] = servers.connecting
    vars(choose)["load_encoder"] = lambda *_, **_named: FakeEncoder()
    encoder = "bundled" if options.encoder == "fake" else "none"
    database = "none" if options.database == "none" else str(Path(options.listings).parent / f"{os.getpid()}.db")
    settings = load_settings({"demo": True, "database": database, "encoder": encoder})
    specs = [
        ServerSpec(name=f"server-{number}", transport=Transport.STDIO, command="simulated")
        for number in range(len(servers))
    ]
    figures: dict[str, Any] = {"servers": len(specs)}
    optimizer = Optimizer(specs, settings)
    gc.collect()
    gc.freeze()
    figures["mb_before"] = resident_mb()
    async with kept_tidy():
        await _ready(optimizer, options.limit, figures)
        figures["tools"] = optimizer.catalog.snapshot.index.size
        await _finds(optimizer, figures)
        async with watched(figures, "until everything is stored and embedded"):
            with suppress(TimeoutError):
                await asyncio.wait_for(optimizer.catalog.caught_up(), options.limit)
        async with watched(figures, "a tenth of the servers dies, and comes back"):
            for name in list(servers.peers)[::10]:
                servers.peers[name].close()
            # They are started again after a second.
            await asyncio.sleep(5)
            with suppress(TimeoutError):
                await asyncio.wait_for(optimizer.catalog.caught_up(), options.limit)
        figures["mb"] = resident_mb()
    return figures


async def _ready(optimizer: Any, limit: float, figures: dict[str, Any]) -> None:
    def is_ready() -> bool:
        # What /ready answers.
        return bool(vars(optimizer)["_life"].is_ready)

    async with watched(figures, "until ready"):
        optimizer.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not is_ready():
                    await asyncio.sleep(PROBE)
        figures["is_ready"] = is_ready()


async def _finds(optimizer: Any, figures: dict[str, Any]) -> None:
    taken: list[tuple[float, float]] = []
    async with watched(figures, "finds"):
        for request in REQUESTS * 5:
            started, at_work = time.perf_counter(), time.process_time()
            found = await optimizer.find(request)
            taken.append((time.perf_counter() - started, time.process_time() - at_work))
            assert found.tools
    figures["first_find_ms"], figures["first_find_work_ms"] = (value * 1e3 for value in taken[0])
    figures["find_ms"] = sorted(value for value, _ in taken)[len(taken) // 2] * 1e3


# All versions.


def measured_in(code: str, options: argparse.Namespace, listings: Path) -> dict[str, Any]:
    """The figures of one version, in a process of its own."""
    here = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "benchmarks.gateway.size", "--child", "--listings", str(listings)]
    command += ["--encoder", options.encoder, "--database", options.database, "--limit", str(options.limit)]
    environment = {**os.environ, "PYTHONPATH": f"{Path(code).resolve() / 'src'}{os.pathsep}{here}"}
    print(f"{code}:", file=sys.stderr)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.returncode}


def rows(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| | seconds | CPU s | longest stop | work | 99 % | work | over 200 ms | MB |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for code, figures in found.items():
        for what, value in figures.items():
            if isinstance(value, dict):
                shown = " | ".join(f"{number:,.1f}" if number < 100 else f"{number:,.0f}" for number in _columns(value))
                yield f"| {code}: {what} | {shown} |"
        if "first_find_ms" in figures:
            yield (
                f"{code}: {'' if figures['is_ready'] else 'NOT '}ready; {figures['servers']:,} servers, "
                f"{figures['tools']:,} tools; first find {figures['first_find_ms']:.0f} ms "
                f"({figures['first_find_work_ms']:.0f} of work), then {figures['find_ms']:.0f} ms at p50; "
                f"{figures['mb_before']:.0f} MB before, {figures['mb']:.0f} at the end"
            )


def _columns(value: Mapping[str, float]) -> list[float]:
    names = ("seconds", "work_s", "longest_ms", "longest_work_ms", "p99_ms", "p99_work_ms", "over_200_ms", "mb")
    return [value[name] for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=5_000)
    parser.add_argument("--each", type=int, default=40, help="tools of each server (default: 40)")
    parser.add_argument("--encoder", choices=["none", "fake"], default="none")
    parser.add_argument("--database", choices=["none", "sqlite"], default="none")
    parser.add_argument("--code", nargs="*", default=[str(Path(__file__).resolve().parents[2])])
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each part of a run (default: 900)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--listings", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asyncio.run(measure(options))))
        # Ending thousands of servers is not measured.
        sys.stdout.flush()
        os._exit(0)
    with tempfile.TemporaryDirectory() as folder:
        listings = Path(folder) / "listings"
        write_listings(listings, options.servers, options.each)
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        found = {Path(code).name: measured_in(code, options, listings) for code in options.code}
    print("\n".join(rows(found)))


if __name__ == "__main__":
    main()
