"""A large result reaches real clients complete, on every path, and an expression selects from it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.tool_results.large_server import result
from mcp import Client

from mcp_optimizer import Optimizer
from mcp_optimizer.errors import InvalidRequest
from tests.conftest import WriteServers
from tests.e2e.running import gateway_at, over_stdio, until_found
from tests.e2e.test_http_upstreams import free_port, listening

SERVER = Path(__file__).parents[2] / "benchmarks" / "tool_results" / "large_server.py"
SIZE = 2_500_000
WHOLE = ("--max-tokens", "0", "--max-rows", "0")


@asynccontextmanager
async def client_of(config: Path, transport: str, mode: str, *options: str) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            client = await stack.enter_async_context(over_stdio(config, *options, mode=mode))
        else:
            address = await stack.enter_async_context(gateway_at(config, *options))
            client = await stack.enter_async_context(Client(address, mode=mode))
        yield client


def on_the_wire(answered: Any) -> dict[str, Any]:
    said: dict[str, Any] = answered.model_dump(mode="json", by_alias=True, exclude_none=True)
    return said


@pytest.mark.promise("passed-as-sent")
@pytest.mark.parametrize(
    ("server", "transport", "mode", "options"),
    [
        ("stdio", "stdio", "legacy", WHOLE),
        ("json", "http", "auto", WHOLE),
        ("sse", "http", "auto", ("--mode", "transparent")),
    ],
)
async def test_a_large_result_arrives_as_it_was_sent(
    write_servers: WriteServers, server: str, transport: str, mode: str, options: tuple[str, ...]
) -> None:
    async with AsyncExitStack() as stack:
        entry: dict[str, Any] = {"command": sys.executable, "args": [str(SERVER)]}
        if server != "stdio":
            port = free_port()
            await stack.enter_async_context(listening(port, str(SERVER), "--http", str(port), "--body", server))
            entry = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        config = write_servers({"large": entry})
        client = await stack.enter_async_context(client_of(config, transport, mode, *options))
        if options == WHOLE:
            await until_found(client, "blocks", "blocks")
        for kind in ("wide", "structured", "file", "blocks"):
            said = on_the_wire(await client.call_tool(kind, {"size": SIZE}))
            sent = result(kind, SIZE)
            assert said["content"] == sent["content"]
            assert said.get("structuredContent") == sent.get("structuredContent")
            assert said["_meta"]["tokens"]["estimated"] > SIZE / 20


async def test_a_large_result_is_cut_searched_and_selected_in(write_servers: WriteServers, tmp_path: Path) -> None:
    config = write_servers({"large": {"command": sys.executable, "args": [str(SERVER)]}})
    async with Optimizer.from_config(config, database=str(tmp_path / "c.db"), encoder="none") as optimizer:
        rows = result("only", SIZE)["structuredContent"]["items"]
        for kind in ("json", "structured", "only"):
            cut = await optimizer.call(kind, {"size": SIZE})
            about = cut["_meta"]["mcp-optimizer/result"]
            assert about["unit"] == "rows"
            shown = json.loads(cut["content"][0]["text"])["items"]
            assert shown == rows[: len(shown)]
            assert "structuredContent" not in cut
            found = await optimizer.read_result(about["resultId"], select="[length(items), items[-1].id]")
            assert json.loads(found["content"][0]["text"]) == [about["total"], about["total"] - 1]
            with pytest.raises(InvalidRequest, match="cannot be applied"):
                await optimizer.read_result(about["resultId"], select="abs(items)")
        picked = await optimizer.call("structured", {"size": SIZE}, select="items[?id < `3`].id")
        assert json.loads(picked["content"][0]["text"]) == [0, 1, 2]
        lines = await optimizer.call("lines", {"size": SIZE})
        with pytest.raises(InvalidRequest, match="select needs data"):
            await optimizer.read_result(lines["_meta"]["mcp-optimizer/result"]["resultId"], select="a")
