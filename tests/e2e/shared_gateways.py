"""A server that counts, and the gateways through which clients on stdio share it, for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.runtime.sharing.client_process import SOCKET_PREFIX
from mcp_optimizer.runtime.sharing.places import made_folder, sockets_named
from tests.conftest import WriteServers
from tests.e2e.raw_clients import LEGACY, StdioClient, message, stdio_client

COUNTING = Path(__file__).parents[1] / "servers" / "counting.py"
PROGRAM = [sys.executable, "-m", "mcp_optimizer_gateway"]


class World:
    """A server that writes down its starts and calls."""

    def __init__(self, config: Path, notes: Path) -> None:
        self.config = config
        self.notes = notes

    @property
    def written(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @asynccontextmanager
    async def client(self, *options: object, era: str = LEGACY) -> AsyncIterator[StdioClient]:
        options = ("--encoder", "none", *options)
        async with stdio_client(self.config, *options, era=era, program=PROGRAM) as client:
            yield client


@contextmanager
def made_world(write_servers: WriteServers, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Gateways are shared in it, as users'; those of other tests have one client. Ends those that are left."""
    monkeypatch.delenv("MCP_OPTIMIZER_SHARED", raising=False)
    notes = folder / "notes"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(COUNTING), str(notes)]}
    yield World(write_servers({"counting": entry}), notes)
    for gateway in gateways():
        with contextlib.suppress(ProcessLookupError):
            os.kill(gateway, signal.SIGKILL)


def gateways() -> list[int]:
    """The process ids of the gateways at which clients can join."""
    folder = made_folder(os.environ)
    assert folder is not None
    found = sockets_named(lambda name: name.startswith(SOCKET_PREFIX), [folder])
    return [process for path in found if is_running(process := int(path.stem.removeprefix(SOCKET_PREFIX)))]


def calling(text: str, number: Any = "witness", era: str = LEGACY, **arguments: Any) -> dict[str, Any]:
    given = {"tool_name": "note", "parameters": {"text": text, **arguments}}
    return message("tools/call", {"name": "call_tool", "arguments": given}, number, era)


async def note(client: StdioClient, text: str) -> str:
    """What the server answers: its own process is part of it."""
    answer = await client.exchange(calling(text, era=client.era))
    said: str = answer["result"]["content"][0]["text"]
    return said


async def count(client: StdioClient) -> tuple[int, int]:
    """How often the server was called to count, and its process."""
    answer = await client.exchange(
        message("tools/call", {"name": "call_tool", "arguments": {"tool_name": "count"}}, "counts", client.era)
    )
    number, process = answer["result"]["content"][0]["text"].split(" by ")
    return int(number), int(process)


def is_running(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return False
