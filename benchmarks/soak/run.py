"""One run of the soak: its gateway, servers and clients, and what disturbs them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from benchmarks.clients import PlainClient
from benchmarks.processes import children, free_port, private_mb, process
from benchmarks.soak.hostile import Hostile, is_hostile
from benchmarks.soak.tasks import Tasks

SERVER = Path(__file__).with_name("server.py")
SERVERS = ("one", "two", "three")
_LONGEST = 20.0
"""Seconds after which a call counts as lost."""
_UNLIMITED = httpx2.Limits(max_connections=None, max_keepalive_connections=None)


@dataclass
class Log:
    """What happened, as the clients saw it."""

    answered: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    left: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    memory: list[tuple[float, float]] = field(default_factory=list)


class Soak:
    """One run, and what was seen of it."""

    def __init__(self, folder: Path, seconds: float, *, is_hostile: bool = True) -> None:
        self._folder = folder
        self._seconds = seconds
        self._hostile = Hostile(folder, seconds) if is_hostile else None
        self.server_tasks = Tasks()
        self._numbers = itertools.count(1)
        self.log = Log()
        self.rate = 0.0
        self.tasks = (0, 0)
        self.children: list[int] = []
        self.honest: list[int] = []
        self.left_over: list[int] = []

    async def run(self) -> None:
        port, far_port, task_port = free_port(), free_port(), free_port()
        entries = {
            name: {"command": sys.executable, "args": [str(SERVER), str(self._folder / name)]} for name in SERVERS[:2]
        }
        far = {"type": "http", "url": f"http://127.0.0.1:{far_port}/mcp"}
        config = self._folder / "mcp.json"
        hostile = self._hostile.entries if self._hostile is not None else {}
        options = [f"config={config}", f"http=127.0.0.1:{port}", "mode=transparent", "encoder=none"]
        options += [f"database={self._folder / 'catalog.db'}", "restart_pause=0.2", "restart_pause_max=1"]
        command = [sys.executable, "-m", "benchmarks.soak.gateway", str(self._folder / "tasks"), *options]
        async with AsyncExitStack() as stack:
            work = await stack.enter_async_context(self.server_tasks.server(task_port))
            servers = {**entries, SERVERS[2]: far, "work": work, **hostile}
            config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
            far_server = asyncio.create_task(self._keep_far_server(far_port))
            if self._hostile is not None:
                await stack.enter_async_context(self._hostile.server_over_http())
            pid = await stack.enter_async_context(process(*command, port=port, stderr=sys.stderr))
            url = f"http://127.0.0.1:{port}/mcp"
            await self._work(url, pid)
            far_server.cancel()
            await asyncio.wait({far_server})
            # The hostile child may be running or restarting at this moment; no child may outlive the gateway.
            self.children = children(pid)
            self.honest = _honest(self.children)
        await asyncio.sleep(0.5)
        self.left_over = [child for child in self.children if Path(f"/proc/{child}").exists()]

    async def _work(self, url: str, pid: int) -> None:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=_LONGEST, limits=_UNLIMITED))
            clients = [PlainClient(http, url, is_modern=number % 2 == 0) for number in range(8)]
            await asyncio.gather(*(client.connect() for client in clients))
            await self._until_up(clients[0])
            self.rate = await self._top_rate(clients) / 2
            # By now everything that loads late is loaded.
            before = await self._count_tasks(pid)
            started = time.monotonic()
            disturbing = [
                asyncio.create_task(self._kill(pid)),
                asyncio.create_task(self._leave(http, url)),
                asyncio.create_task(self._weigh(pid, started)),
                asyncio.create_task(self.server_tasks.make_all(http, url)),
            ]
            if self._hostile is not None:
                disturbing.append(asyncio.create_task(self._hostile.show_all(http, url)))
            await self._steadily(clients, started + self._seconds)
            for task in disturbing:
                task.cancel()
            await asyncio.wait(disturbing)
            if self._hostile is not None:
                self._hostile.turn_good()
            await self._until_up(clients[0])
            await asyncio.sleep(3)
            self.tasks = (before, await self._count_tasks(pid))

    async def _until_up(self, client: PlainClient) -> None:
        async with asyncio.timeout(60):
            while await self._running(client) < 2 * len(SERVERS):
                await asyncio.sleep(0.2)

    async def _running(self, client: PlainClient) -> int:
        """How many tools of the soak's well-behaved servers are listed."""
        tools = (await client.request(0, "tools/list", {}))["result"]["tools"]
        return sum(tool["name"].startswith(tuple(f"{name}__" for name in SERVERS)) for tool in tools)

    async def _top_rate(self, clients: list[PlainClient]) -> float:
        done, until = 0, time.monotonic() + 4

        async def work(client: PlainClient) -> None:
            nonlocal done
            while time.monotonic() < until:
                await self._call(client)
                done += 1

        await asyncio.gather(*(work(client) for client in clients for _ in range(2)))
        return done / 4

    async def _steadily(self, clients: list[PlainClient], until: float) -> None:
        """Call at an even rate; no call waits for another."""
        under_way: set[asyncio.Task[None]] = set()
        following = time.monotonic()
        for client in itertools.cycle(clients):
            if time.monotonic() > until:
                break
            task = asyncio.create_task(self._call(client))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            following = max(following + 1 / self.rate, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, following - time.monotonic()))
        if under_way:
            await asyncio.wait(under_way, timeout=_LONGEST + 5)

    async def _call(self, client: PlainClient) -> None:
        number = next(self._numbers)
        params = {"name": f"{random.choice(SERVERS)}__echo", "arguments": {"id": str(number)}}
        try:
            message = await client.request(number, "tools/call", params)
        except (httpx2.HTTPError, AssertionError) as error:
            self.log.lost.append(f"{number}: {error!r}")
            return
        result = message.get("result")
        if result is None:
            self.log.told[" ".join(message["error"]["message"].split()[2:9])] += 1
        elif result.get("isError"):
            self.log.told[" ".join(result["content"][0]["text"].split()[3:8])] += 1
        elif message["id"] == number and result["content"][0]["text"].split()[0] == str(number):
            self.log.answered.append(str(number))
        else:
            self.log.wrong.append(str(number))

    async def _kill(self, pid: int) -> None:
        """Every few seconds, kill a child; every third time, the server over HTTP instead."""
        pause = min(15.0, self._seconds / 4)
        for number in itertools.count(1):
            await asyncio.sleep(pause)
            if number % 3 == 0:
                self._far_must_die.set()
            elif alive := _honest(children(pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(alive), signal.SIGKILL)
            self.log.kills += 1

    _far_must_die = asyncio.Event()

    async def _keep_far_server(self, port: int) -> None:
        while True:
            command = [sys.executable, str(SERVER), str(self._folder / SERVERS[2]), str(port)]
            server = await asyncio.create_subprocess_exec(*command)
            try:
                self._far_must_die.clear()
                await self._far_must_die.wait()
            finally:
                server.kill()
                await server.wait()

    async def _leave(self, http: httpx2.AsyncClient, url: str) -> None:
        """Connect, call, and leave before the result arrives."""
        for number in itertools.count():
            await asyncio.sleep(0.5)
            client = PlainClient(http, url, is_modern=number % 2 == 0)
            # Connect before the clock starts: a session whose client never read its id ends only when it times out.
            await client.connect()
            leaving = asyncio.create_task(self._call_and_wait(client))
            await asyncio.sleep(0.4)
            leaving.cancel()
            await asyncio.wait({leaving})
            await client.leave()
            self.log.left += 1

    async def _call_and_wait(self, client: PlainClient) -> None:
        with contextlib.suppress(httpx2.HTTPError, AssertionError):
            number = next(self._numbers)
            params = {"name": f"{random.choice(SERVERS)}__wait", "arguments": {"id": f"left-{number}"}}
            await client.request(number, "tools/call", params)

    async def _weigh(self, pid: int, started: float) -> None:
        while True:
            self.log.memory.append((time.monotonic() - started, private_mb(pid)))
            await asyncio.sleep(min(5.0, self._seconds / 20))

    async def _count_tasks(self, pid: int) -> int:
        path = self._folder / "tasks"
        path.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.1)
        return int(path.read_text())

    @property
    def is_hostile(self) -> bool:
        return self._hostile is not None

    @property
    def shown(self) -> Counter[str]:
        """How often each hostile input was shown."""
        return self._hostile.shown() if self._hostile is not None else Counter()

    def executed(self) -> Counter[str]:
        """How often each call happened, according to the servers' logs."""
        paths = [self._folder / name for name in SERVERS]
        return Counter(line for path in paths for line in path.read_text(encoding="utf-8").split())

    def tenths(self) -> list[float]:
        """Mean memory in each tenth of the run."""
        step = self._seconds / 10
        parts = [[memory for at, memory in self.log.memory if at // step == part] for part in range(10)]
        return [statistics.mean(part) for part in parts if part]

    def thirds(self) -> tuple[float, float]:
        """Mean memory in the first and the last third of the run, without its first tenth.

        With hostile servers, without its first four tenths: until each input was seen once, there is more to keep.
        """
        left_out = self._seconds * (0.4 if self._hostile is not None else 0.1)
        weighed = [memory for at, memory in self.log.memory if at > left_out]
        third = max(1, len(weighed) // 3)
        return statistics.mean(weighed[:third]), statistics.mean(weighed[-third:])


def _honest(pids: list[int]) -> list[int]:
    """The well-behaved servers, without the process that watches over all of them."""
    return [pid for pid in pids if not is_hostile(pid) and not _is_watcher(pid)]


def _is_watcher(pid: int) -> bool:
    try:
        return b"orphans.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
