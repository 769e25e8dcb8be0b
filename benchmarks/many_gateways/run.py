"""One run: PostgreSQL, three gateways behind HAProxy, their clients, and what is done to them meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from tests.cluster import Cluster, running_cluster
from tests.postgres import Postgres, find_programs, running_postgres

from benchmarks.many_gateways.clients import Clients
from benchmarks.many_gateways.faults import Faults, Plan
from benchmarks.many_gateways.ledger import BALANCER, CLIENTS, DATABASE, Ledger
from benchmarks.processes import children, private_mb

SERVER = Path(__file__).with_name("server.py")
COMMAND = [sys.executable, "-m", "mcp_optimizer"]
OPTIONS = ("--max-tokens", 500, "--preview-tokens", 200, "--cache-seconds", 60, "--shutdown-delay", 2)
_UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
_PATIENCE = 60.0
"""Seconds after which a client gives a request up: far more than anybody may wait."""
_LONG_LIFE = 600.0
"""Seconds that a gateway has to live for its memory to say something."""
_SETTLING = 120.0
"""Seconds at the beginning of a life in which everything is loaded."""
_GROWTH, _MORE_FILES = 1.05, 5


@dataclass(frozen=True)
class Weight:
    """What one gateway held at one moment of the life that has this process id."""

    at: float
    pid: int
    megabytes: float
    files: int


@dataclass
class Run:
    """One run, and what was seen of it."""

    folder: Path
    plan: Plan
    ledger: Ledger = field(default_factory=Ledger)
    weights: defaultdict[str, list[Weight]] = field(default_factory=lambda: defaultdict(list))
    seconds: float = 0.0

    async def run(self, *, is_short: bool) -> None:
        programs = find_programs()
        if programs is None:
            raise FileNotFoundError("PostgreSQL is not installed")
        config = self.folder / "mcp.json"
        # As docs/many-gateways.md advises: otherwise the first calls after a restart wait for the server as well.
        entry = {"command": sys.executable, "args": [str(SERVER), str(self.folder)], "start": "with the gateway"}
        config.write_text(json.dumps({"mcpServers": {"soak": entry}}), encoding="utf-8")
        limits = {"max_connections": "60", "superuser_reserved_connections": "0"}
        with ExitStack() as stack:
            postgres = stack.enter_context(running_postgres(programs, limits))
            database = postgres.new_database()
            cluster = stack.enter_context(running_cluster(COMMAND, config, database, *OPTIONS))
            await self._work(cluster, postgres, database, is_short=is_short)
            self.ledger.gateways = gateways_of(cluster.log)
        log = self.folder / "log"
        self.ledger.executed = Counter(log.read_text(encoding="utf-8").split())

    async def _work(self, cluster: Cluster, postgres: Postgres, database: str, *, is_short: bool) -> None:
        faults = Faults(cluster, postgres, database, self.ledger, self.plan)
        ends = asyncio.Event()
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=_PATIENCE, limits=_UNLIMITED))
            await stack.enter_async_context(_beside(self._weigh(cluster)))
            await stack.enter_async_context(_beside(self._look_at_queues(cluster, postgres)))
            began = time.monotonic()
            clients = Clients(http, cluster.address, self.ledger, ends, later=3 if is_short else 12)
            using = asyncio.create_task(clients.run())
            try:
                await (self._briefly(faults, cluster) if is_short else self._at_length(faults, cluster))
            finally:
                ends.set()
                await using
            self.seconds = time.monotonic() - began

    async def _briefly(self, faults: Faults, cluster: Cluster) -> None:
        first, second, _ = cluster.gateways
        await asyncio.sleep(1)
        await faults.kill(first)
        await faults.stop_database()
        await faults.pause(second)
        await faults.exhaust_connections()
        await faults.restart_database()
        await faults.roll()

    async def _at_length(self, faults: Faults, cluster: Cluster) -> None:
        """The first gateway lives for most of the time, so that growth would show; the others die in turn."""
        first, second, third = cluster.gateways
        others: list[Callable[[], Awaitable[None]]] = [
            faults.stop_database,
            lambda: faults.pause(first),
            faults.restart_database,
            faults.exhaust_connections,
            lambda: faults.pause(third),
            faults.fill_database,
            lambda: faults.stop_database_and_kill(second),
        ]
        began, minute = time.monotonic(), self.plan.every
        await faults.every_minute([first, second, third], [faults.roll, faults.roll])
        await faults.every_minute([second, third], others, until=began + self.plan.whole - minute)
        await faults.every_minute([first], [faults.roll])

    async def _weigh(self, cluster: Cluster) -> None:
        while True:
            for gateway in cluster.gateways:
                pid = gateway.pid
                with contextlib.suppress(OSError):
                    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
                    self.weights[gateway.name].append(Weight(time.monotonic(), pid, private_mb(pid), files))
            await asyncio.sleep(2)

    async def _look_at_queues(self, cluster: Cluster, postgres: Postgres) -> None:
        """How long each party stands in line for a processor, a few times a second."""
        before: dict[int, float] = {}
        while True:
            parties = {gateway.name: [gateway.pid, *_children(gateway.pid)] for gateway in cluster.gateways}
            parties |= {CLIENTS: [os.getpid()], BALANCER: [cluster.balancer], DATABASE: _children(postgres.pid)}
            for who, pids in parties.items():
                more = 0.0
                for pid in pids:
                    queued = _queued(pid)
                    more += max(0.0, queued - before.get(pid, 0.0))
                    before[pid] = queued
                self.ledger.queued.add(who, time.monotonic(), more)
            await asyncio.sleep(0.25)

    def lives(self) -> list[tuple[str, list[Weight]]]:
        """What each gateway held in each life that was long enough to say something, without its first minutes."""
        by_life: defaultdict[tuple[str, int], list[Weight]] = defaultdict(list)
        for name, weights in self.weights.items():
            for weight in weights:
                by_life[name, weight.pid].append(weight)
        return [
            (name, [one for one in life if one.at - life[0].at > _SETTLING])
            for (name, _), life in by_life.items()
            if life[-1].at - life[0].at >= _LONG_LIFE
        ]

    def growth(self) -> dict[str, str]:
        """What grew from the first to the last third of a long life."""
        grown = {}
        for name, life in self.lives():
            (before, after), (files, more) = thirds(life)
            if after > before * _GROWTH or more > files + _MORE_FILES:
                grown[name] = f"{before:.1f} to {after:.1f} MB, {files:.0f} to {more:.0f} file descriptors"
        return grown


def thirds(life: list[Weight]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean memory and mean number of open files, in the first and the last third of a life."""
    third = max(1, len(life) // 3)
    parts = life[:third], life[-third:]
    memory = [statistics.mean(one.megabytes for one in part) for part in parts]
    files = [statistics.mean(one.files for one in part) for part in parts]
    return (memory[0], memory[1]), (files[0], files[1])


def gateways_of(log: Path) -> dict[str, str]:
    """The gateway that had each request, by the request's name, from HAProxy's log."""
    line = re.compile(r" gateways/(\S+?)(?:-unchecked)? .*\{(q\d+)\}")
    with log.open(encoding="utf-8") as lines:
        return {found[2]: found[1] for each in lines if (found := line.search(each))}


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return children(pid)
    return []


def _queued(pid: int) -> float:
    """Seconds that all threads of a process have waited for a processor."""
    total = 0
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(path.read_text().split()[1])
    return total / 1e9


@asynccontextmanager
async def _beside(work: Awaitable[None]) -> AsyncIterator[None]:
    """Do something that has no end of its own; if it fails, so does the run."""
    task = asyncio.ensure_future(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait({task})
