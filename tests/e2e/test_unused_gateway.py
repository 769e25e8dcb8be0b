"""A gateway that nobody has searched holds in memory what it needs so far, also when it has just embedded its tools."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import httpx2
import pytest
from mcp import Client

from tests.waiting import until

UNUSED = {
    "alembic",
    "cryptography",
    "numpy",
    "onnxruntime",
    "sqlalchemy.orm",
    "mcp.server.mcpserver",
    "sqlalchemy.dialects.postgresql",
}
TOOLS = 85


@pytest.fixture(autouse=True)
def _with_the_encoder(monkeypatch: pytest.MonkeyPatch, _by_words: None) -> None:
    monkeypatch.delenv("MCP_OPTIMIZER_ENCODER")


def imported(log: Path) -> set[str]:
    """What Python says that it has imported: modules, and the packages that they are in."""
    return set(re.findall(r"^import time:.*\| +(\S+)$", log.read_text(), re.MULTILINE))


@asynccontextmanager
async def serving(database: Path, log: Path) -> AsyncIterator[str]:
    """The address of a gateway that is ready and has stored the vectors of all tools."""
    options = ["--demo", "--http", "127.0.0.1:0", "--database", str(database)]
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "importtime", "-m", "mcp_optimizer", "serve", *options), stderr=said
        )
    try:
        await until(lambda: "serves" in log.read_text(), "the gateway to listen", timeout=60)
        [address] = re.findall(r"http://\S+/mcp", log.read_text())

        async def is_ready() -> bool:
            async with httpx2.AsyncClient() as http:
                return (await http.get(f"{address.removesuffix('mcp')}ready")).status_code == 200

        await until(is_ready, "the gateway to be ready", timeout=60)
        await until(lambda: stored(database) == TOOLS, "all tools to be embedded", timeout=60)
        yield address
    finally:
        process.terminate()
        await process.wait()


def stored(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM definition_vector").fetchall()
        return int(count)


async def is_found(client: Client) -> bool:
    """By its meaning: its name and its description contain no word of the request."""
    found = await client.call_tool("find_tool", {"tool_description": "relocate a ticket"})
    return "move_card" in str(found.content)


@pytest.mark.slow
async def test_what_only_a_search_or_a_first_start_needs_is_not_loaded_until_then(tmp_path: Path) -> None:
    for start in ("first", "next"):
        log = tmp_path / f"{start}.log"
        async with serving(tmp_path / "catalog.db", log) as address:
            assert imported(log) & UNUSED == set(), start
            assert "sqlalchemy.ext.asyncio.engine" in imported(log)
            async with Client(address) as client:
                await until(partial(is_found, client), "the tool to be found by its meaning", timeout=30)
            assert imported(log) & UNUSED == {"numpy", "onnxruntime"}
