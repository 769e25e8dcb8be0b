"""Clients of the soak that use tasks: some ask for their results, some wait in their calls, some cancel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.clients import PlainClient

SERVER = Path(__file__).parents[2] / "tests" / "servers" / "extended.py"
_DECLARED: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
_PAUSE = 0.25
_ASK_AGAIN = 0.1
_LONGEST = 20.0
_ENDED = ("completed", "failed", "cancelled")


@dataclass
class TaskLog:
    """What became of the tasks, as their clients saw it."""

    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Tasks:
    """The server with tasks, and its clients while the soak lasts."""

    def __init__(self) -> None:
        self.log = TaskLog()

    @contextlib.asynccontextmanager
    async def server(self, port: int) -> AsyncIterator[dict[str, Any]]:
        """The entry of a server over HTTP that nothing kills."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SERVER), "--name", "work", "--http", str(port)
        )
        try:
            yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            process.kill()
            await process.wait()

    async def make_all(self, http: httpx2.AsyncClient, url: str) -> None:
        """Make tasks until this is cancelled: one in three is waited for in its call, one in ten is cancelled."""
        asking, waiting = PlainClient(http, url, is_modern=True, capabilities=_DECLARED), PlainClient(http, url)
        await asking.connect()
        await waiting.connect()
        async with asyncio.TaskGroup() as group:
            for number in itertools.count(1):
                if number % 3 == 0:
                    group.create_task(self._wait(waiting, number))
                elif number % 10 == 0:
                    group.create_task(self._cancel(asking, number))
                else:
                    group.create_task(self._ask(asking, number))
                await asyncio.sleep(_PAUSE)

    async def _wait(self, client: PlainClient, number: int) -> None:
        with self._noted(number):
            result = _result(await client.request(number, "tools/call", _call("slow_compute", number)))
            self._check(number, result)
            self.log.ended["awaited in the call"] += 1

    async def _ask(self, client: PlainClient, number: int) -> None:
        with self._noted(number):
            made = _result(await client.request(number, "tools/call", _call("slow_compute", number)))
            if made["resultType"] != "task":
                # The database was too slow to keep it, so the gateway waited for it.
                self._check(number, made)
                self.log.ended["awaited, because they could not be kept"] += 1
                return
            found = await self._until_ended(client, number, made["taskId"])
            self._check(number, found["result"])
            self.log.ended["asked for"] += 1

    async def _cancel(self, client: PlainClient, number: int) -> None:
        with self._noted(number):
            try:
                async with asyncio.timeout(_LONGEST):
                    made = _result(await client.request(number, "tools/call", _call("endless", number)))
            except TimeoutError:
                # It could not be kept, so the gateway waits for it, until its client leaves.
                self.log.ended["left, because they could not be kept"] += 1
                return
            await self._told(client, number, "tasks/cancel", made["taskId"])
            found = await self._until_ended(client, number, made["taskId"])
            assert found["status"] == "cancelled", found
            self.log.ended["cancelled"] += 1

    async def _until_ended(self, client: PlainClient, number: int, task: str) -> dict[str, Any]:
        async with asyncio.timeout(_LONGEST):
            while True:
                found = await self._told(client, number, "tasks/get", task)
                if found["status"] in _ENDED:
                    return found
                await asyncio.sleep(_ASK_AGAIN)

    async def _told(self, client: PlainClient, number: int, method: str, task: str) -> dict[str, Any]:
        """The answer to a request about a task, which is made again if the answer says so."""
        while True:
            answer = await client.request(number, method, {"taskId": task})
            if not answer.get("error", {}).get("message", "").endswith("Ask again."):
                return _result(answer)
            self.log.ended["answers that said to ask again, because the database was away"] += 1
            await asyncio.sleep(_ASK_AGAIN)

    def _check(self, number: int, result: dict[str, Any]) -> None:
        if result["content"][0]["text"] != f"computed {number}":
            self.log.wrong.append(f"{number}: {result}")

    @contextlib.contextmanager
    def _noted(self, number: int) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except (httpx2.HTTPError, AssertionError, KeyError, TimeoutError) as error:
            self.log.lost.append(f"task {number}: {error!r} after {time.monotonic() - began:.1f} s")


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def _call(tool: str, number: int) -> dict[str, Any]:
    return {"name": tool, "arguments": {"seconds": number % 4 / 4, "label": str(number)}}
