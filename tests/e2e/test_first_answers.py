"""A gateway on stdio answers its client's first requests while it is still being loaded.

The processes here wait in the middle of their imports until a test lets them go on, so that "while" is certain.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.runtime.sharing.places import CAN_CONTROL
from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import HELLO, LEGACY, MODERN, StdioClient, message, resident_bytes
from tests.e2e.running import COMMAND
from tests.e2e.shared_gateways import gateways
from tests.waiting import until

MEGABYTE = 1_000_000
PATIENCE = 60
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
HOOK = """
import os, sys
class Held:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp_optimizer.app.optimizer":
            sys.meta_path.remove(self)
            with open(os.environ["GO_ON"]) as file:
                if file.read() == "fail":
                    raise ImportError("a part is missing")
sys.meta_path.insert(0, Held())
"""
NEEDS_SOCKETS = pytest.mark.skipif(not CAN_CONTROL, reason="this system has no sockets that belong to a user")
pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")]


class Held(StdioClient):
    """The client of a gateway whose imports wait."""

    def __init__(self, process: asyncio.subprocess.Process, go: Path) -> None:
        super().__init__(process, LEGACY)
        self._go = go

    async def go_on(self, how: str = "on") -> None:
        # Opening it waits for the gateway to come to that import.
        await asyncio.to_thread(self._go.write_text, how)

    async def open(self) -> None:
        assert "result" in await self.ask("initialize", HELLO)
        await self.send(INITIALIZED)

    async def finish(self) -> list[dict[str, Any]]:
        """No more input; everything that still comes out."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = await asyncio.wait_for(self.process.stdout.read(), PATIENCE)
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        return [json.loads(line) for line in rest.splitlines()]


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


@asynccontextmanager
async def held(config: Path, *options: str) -> AsyncIterator[Held]:
    folder = config.parent / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOK)
    os.mkfifo(folder / "go")
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--config",
        str(config),
        "--database",
        "none",
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "GO_ON": str(folder / "go")},
    )
    try:
        yield Held(process, folder / "go")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_the_tools_are_listed_before_the_gateway_is_loaded_and_called_after(config: Path, era: str) -> None:
    # The names of servers would come later, once they are known; see test_signposts.
    async with held(config, "--no-name-servers") as client:
        client.era = era
        if era == LEGACY:
            await client.open()
        else:
            assert "result" in await client.ask("server/discover")
        listed = await client.ask("tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]][:2] == ["find_tool", "call_tool"]
        await client.send(message("tools/call", {"name": "list_tools", "arguments": {}}, "waits", era))
        await client.go_on()
        assert (await client.receive())["id"] == "waits"
        assert (await client.ask("tools/list"))["result"] == listed["result"]
        found = await client.ask("tools/call", {"name": "list_tools", "arguments": {}})
        assert found["result"]["isError"] is False
        assert await client.finish() == []
        assert client.process.returncode == 0


async def test_ids_come_back_as_they_were_sent(config: Path) -> None:
    async with held(config) as client:
        await client.open()
        for number in (0, -1, 2**62, "", "x", "7", 7, "é\n"):
            assert (await client.ask("ping", number=number))["result"] == {}
        await client.send({"jsonrpc": "2.0", "id": 1.5, "method": "ping"})
        await client.send({"jsonrpc": "2.0", "id": "after", "method": "ping"})
        await client.go_on()
        assert {(await client.receive())["id"] for _ in range(2)} == {None, "after"}


async def test_each_of_ten_thousand_pings_is_answered_once(config: Path) -> None:
    async with held(config) as client:
        await client.open()

        async def send() -> None:
            for number in range(10_000):
                await client.send(message("ping", None, number))

        sending = asyncio.create_task(send())
        received = [(await client.receive())["id"] for _ in range(500)]
        await client.go_on()
        received += [(await client.receive())["id"] for _ in range(9_500)]
        await sending
        assert sorted(received) == list(range(10_000))
        assert await client.finish() == []


@pytest.mark.parametrize("is_shared", [False, pytest.param(True, marks=NEEDS_SOCKETS)])
async def test_a_line_of_a_hundred_megabytes_waits_in_the_pipe_and_is_refused_later(
    config: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_SHARED", str(is_shared))
    async with held(config) as client:
        await client.open()
        await client.ask("ping")
        before = resident_bytes(client.process.pid)
        assert client.process.stdin is not None
        client.process.stdin.write(b'{"jsonrpc": "2.0", "id": 8, "method": "ping", "params": "')
        client.process.stdin.write(b"x" * 100 * MEGABYTE + b'"}\n')
        # It waits: not even a megabyte is read before the gateway is loaded.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.process.stdin.drain(), 0.5)
        assert resident_bytes(client.process.pid) - before < 10 * MEGABYTE
        await client.go_on()
        refused = await client.receive()
        assert (refused["id"], refused["error"]["code"]) == (8, -32600)
        assert "result" in await client.ask("prompts/list")


async def test_half_a_line_before_the_end_gets_no_answer(config: Path) -> None:
    async with held(config) as client:
        assert client.process.stdin is not None
        client.process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"')
        client.process.stdin.close()
        await client.go_on()
        assert await client.finish() == []
        assert client.process.returncode == 0


async def test_a_client_that_leaves_early_ends_the_gateway_once_it_is_loaded(config: Path) -> None:
    async with held(config) as client:
        await client.send(message("initialize", HELLO))
        await client.send(message("tools/list", None, 2))
        ending = asyncio.create_task(client.finish())
        await client.go_on()
        assert [reply["id"] for reply in await ending] == [1, 2]
        assert client.process.returncode == 0


async def test_a_second_handshake_is_left_to_the_server(config: Path) -> None:
    async with held(config) as client:
        await client.open()
        await client.send(message("initialize", {**HELLO, "protocolVersion": "2024-11-05"}, "again"))
        await client.send(message("tools/list", None, "last"))
        await client.go_on()
        assert {(await client.receive())["id"] for _ in range(2)} == {"again", "last"}


async def test_sigterm_ends_a_gateway_that_is_being_loaded_at_once(config: Path) -> None:
    async with held(config) as client:
        await client.open()
        client.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(client.process.wait(), PATIENCE) == -signal.SIGTERM


@NEEDS_SOCKETS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_shared_gateway_that_is_being_loaded_ends_after_its_last_client(
    config: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.delenv("MCP_OPTIMIZER_SHARED")
    async with held(config) as client:
        await client.open()
        assert len(gateways()) == 1
        client.process.send_signal(number)
        await asyncio.wait_for(client.process.wait(), PATIENCE)
        await until(lambda: not gateways(), timeout=PATIENCE)


@pytest.mark.parametrize("is_shared", [False, pytest.param(True, marks=NEEDS_SOCKETS)])
async def test_a_part_that_cannot_be_loaded_is_named(
    config: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_SHARED", str(is_shared))
    async with held(config) as client:
        await client.open()
        await client.go_on("fail")
        assert client.process.stderr is not None
        assert b"a part is missing" in await asyncio.wait_for(client.process.stderr.read(), PATIENCE)
        assert await client.process.wait() == 1


@pytest.mark.parametrize("options", [("--mode", "transparent"), ("--profile", "full")])
async def test_a_list_that_depends_on_the_servers_waits_for_them(config: Path, options: tuple[str, str]) -> None:
    async with held(config, *options) as client:
        await client.send(message("initialize", HELLO))
        await client.send(message("tools/list", None, 2))
        await client.go_on()
        assert "result" in await client.receive()
        tools = (await client.receive())["result"]["tools"]
        assert "echo" in [tool["name"] for tool in tools]
