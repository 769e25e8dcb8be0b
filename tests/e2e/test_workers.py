"""`serve --workers N`: several processes at one port, kept alive by another, that act as one gateway."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from benchmarks.clients import PlainClient
from benchmarks.processes import children

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import ACCEPT, MODERN, answer_of, message
from tests.e2e.running import COMMAND, command
from tests.e2e.test_control import listed_gateways
from tests.e2e.test_stopping import SOAK_SERVER
from tests.waiting import until
from tests.warm import warm_server

ASKING = Path(__file__).parents[1] / "servers" / "conformant.py"
PATIENCE = 90.0
"""Seconds for processes to start while other tests run."""


@dataclass
class Served:
    """A gateway with workers."""

    process: asyncio.subprocess.Process
    address: str
    written: list[str]

    @property
    def workers(self) -> list[int]:
        return children(self.process.pid) if self.process.returncode is None else []

    async def who(self) -> str:
        """Which worker answers a new connection."""
        async with httpx2.AsyncClient() as http:
            return str((await http.get(self.address.removesuffix("mcp") + "health")).json()["worker"])

    async def all_serve(self, count: int) -> bool:
        try:
            return len({await self.who() for _ in range(12)}) == count
        except httpx2.HTTPError:
            return False


@asynccontextmanager
async def served(config: Path, database: Path | str, *options: object, workers: int = 2) -> AsyncIterator[Served]:
    arguments = ["--config", config, "--database", database, "--http", "127.0.0.1:0", "--workers", workers, *options]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", *map(str, arguments), "--encoder", "none", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    written: list[str] = []
    try:
        while not (found := re.search(r"http://\S+/mcp", written[-1] if written else "")):
            line = (await asyncio.wait_for(process.stderr.readline(), PATIENCE)).decode()
            assert line, written
            written.append(line)
        reading = asyncio.create_task(_read(process.stderr, written))
        yield Served(process, found.group(), written)
        reading.cancel()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 30)


async def _read(stream: asyncio.StreamReader, written: list[str]) -> None:
    while line := await stream.readline():
        written.append(line.decode())


async def lists(served: Served, tool: str) -> bool:
    async with httpx2.AsyncClient() as http:
        client = PlainClient(http, served.address, is_modern=True)
        await client.connect()
        answer = await client.request(1, "tools/list", {})
    return any(one["name"].endswith(tool) for one in answer["result"]["tools"])


async def test_workers_answer_at_one_port_take_in_files_and_are_started_again_when_they_die(
    write_servers: WriteServers, place: Path | str
) -> None:
    config = write_servers({"one": plain_server("one")})
    async with served(config, place, "--mode", "transparent", "--no-reload") as gateway:
        await until(lambda: gateway.all_serve(2), timeout=PATIENCE)
        gateways = await listed_gateways(2, "--config", config, "--database", place)
        assert sorted(one["worker"] for one in gateways) == ["1/2", "2/2"]
        assert {one["address"] for one in gateways} == {gateway.address}

        victim = next(one["pid"] for one in gateways if one["worker"] == "2/2")
        os.kill(victim, signal.SIGKILL)
        await until(lambda: any("Worker 2 ended with signal SIGKILL" in line for line in gateway.written))
        await until(lambda: gateway.all_serve(2), timeout=PATIENCE)
        assert victim not in gateway.workers

        config.write_text(json.dumps({"mcpServers": {"other": plain_server("other", "--tools", 12)}}))
        gateway.process.send_signal(signal.SIGHUP)
        for _ in range(6):
            await until(lambda: lists(gateway, "other_action_0"), timeout=PATIENCE)
        assert gateway.process.returncode is None


async def test_workers_finish_their_calls_when_the_gateway_stops_and_leave_nothing_behind(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    config = write_servers({"one": {"command": sys.executable, "args": [str(SOAK_SERVER), str(log)]}})
    async with served(config, tmp_path / "catalog.db", "--mode", "transparent") as gateway:
        await until(lambda: gateway.all_serve(2), timeout=PATIENCE)
        await until(lambda: lists(gateway, "wait"), timeout=PATIENCE)
        workers = gateway.workers
        servers = [child for worker in workers for child in children(worker)]
        async with httpx2.AsyncClient(timeout=30) as http:
            client = PlainClient(http, gateway.address, is_modern=True)
            await client.connect()
            calling = [
                asyncio.create_task(
                    client.request(number, "tools/call", {"name": "wait", "arguments": {"id": str(number)}})
                )
                for number in range(6)
            ]
            await until(lambda: len(log.read_text().splitlines()) == 6)
            gateway.process.send_signal(signal.SIGTERM)
            results = [(await call)["result"] for call in calling]
        assert [result.get("isError", False) for result in results] == [False] * 6
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
        await until(lambda: not [pid for pid in (*workers, *servers) if Path(f"/proc/{pid}").exists()])


async def test_an_answer_reaches_the_worker_that_asked(write_servers: WriteServers, tmp_path: Path) -> None:
    asking = warm_server(ASKING, "--era", "legacy")
    meta: dict[str, Any] = {types.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}}}
    params = {"name": "ask_with_pid", "arguments": {}, "_meta": meta}
    routing = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "ask_with_pid"}

    async def call(gateway: Served, worker: str, **answers: object) -> dict[str, Any]:
        """At one of the workers: the system chooses it for each connection."""
        while True:
            async with httpx2.AsyncClient(timeout=30) as http:
                health = await http.get(gateway.address.removesuffix("mcp") + "health")
                if health.json()["worker"] == worker:
                    request = message("tools/call", {**params, **answers}, 1, MODERN)
                    answer = answer_of(await http.post(gateway.address, json=request, headers={**ACCEPT, **routing}))
                    result: dict[str, Any] = answer["result"]
                    return result

    config = write_servers({"old": asking})
    async with served(config, tmp_path / "catalog.db", "--mode", "transparent") as gateway:
        await until(lambda: gateway.all_serve(2), timeout=PATIENCE)
        for asked, answered in (("1/2", "2/2"), ("2/2", "1/2")):
            state = (await call(gateway, asked))["requestState"]
            given = {"q1": {"action": "accept", "content": {"answer": "yes"}}}
            for _ in range(3):
                result = await call(gateway, answered, inputResponses=given, requestState=state)
                # The worker that asked has 1.5 s to prove itself, which a busy machine may take from it.
                if "has ended or does not answer" not in result["content"][0]["text"]:
                    break
            assert result["content"][0]["text"] == "Answered: accept"


async def test_workers_end_when_the_process_that_started_them_is_killed(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    async with served(write_servers({"one": plain_server("one")}), tmp_path / "catalog.db") as gateway:
        await until(lambda: gateway.all_serve(2), timeout=PATIENCE)
        workers = gateway.workers
        assert len(workers) == 2
        gateway.process.kill()
        await until(lambda: not [pid for pid in workers if Path(f"/proc/{pid}").exists()], timeout=20)


async def test_a_worker_that_dies_again_and_again_ends_all_with_an_error(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    async with served(write_servers({}), tmp_path / "catalog.db") as gateway:
        killed: set[int] = set()

        async def is_over() -> bool:
            if await serves_first(gateway):
                for pid in set(gateway.workers) - killed:
                    if b'"number": 1,' in Path(f"/proc/{pid}/environ").read_bytes():
                        killed.add(pid)
                        os.kill(pid, signal.SIGKILL)
            return gateway.process.returncode is not None

        await until(is_over, timeout=PATIENCE * 2)
        assert gateway.process.returncode == 1
        # The first death counts only if it came soon after the start, which it need not on a busy machine.
        assert len(killed) in (5, 6)
        await until(lambda: any("Worker 1 died 5 times in a row" in line for line in gateway.written))


async def serves_first(gateway: Served) -> bool:
    try:
        return await gateway.who() == "1/2"
    except httpx2.HTTPError:
        return False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "127.0.0.1:0", "--database", "none"], "--workers needs a database"),
        ([], "--workers needs --http HOST:PORT"),
        (["--http", "127.0.0.1:0", "--workers", "0"], "workers"),
        (["--http", "127.0.0.1:0", "--peer-address", "http://10.0.0.7:1"], "Serve beyond loopback too"),
    ],
)
async def test_workers_where_they_cannot_work_are_an_error_that_says_so(
    write_servers: WriteServers, options: list[str], said: str
) -> None:
    done = await command("serve", "--config", write_servers({}), "--workers", 2, *options)
    assert (done.code, said in done.err) == (2, True), done.err


async def test_what_is_wrong_with_the_settings_is_said_once_and_not_tried_again(write_servers: WriteServers) -> None:
    options = ["--http", "0.0.0.0:0", "--allowed-hosts", "x:*", "--workers", 3]
    done = await command("serve", "--config", write_servers({}), *options)
    assert done.code == 2
    assert done.err.count("there is no key yet") == 1
