"""A gateway that is stopped finishes what is under way, then ends every child."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import http_gateway
from tests.e2e.test_passing import until_up

SOAK_SERVER = Path(__file__).parents[2] / "benchmarks" / "soak_server.py"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_under_way_is_answered_before_the_gateway_stops(
    write_servers: WriteServers, tmp_path: Path, mode: str
) -> None:
    entry = {"command": sys.executable, "args": [str(SOAK_SERVER), str(tmp_path / "log")]}
    config = write_servers({"slow": entry})
    async with http_gateway(config, "--mode", "transparent", "--database", "none") as (address, process):
        client = Client(address, mode=mode)
        await client.__aenter__()
        await until_up(client)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        call = asyncio.create_task(client.call_tool("wait", {"id": "mine"}))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        content = (await call).content[0]
        assert isinstance(content, types.TextContent)
        assert content.text.startswith("mine")
        await asyncio.wait_for(process.wait(), 15)
        assert time.monotonic() - started < 10
        assert process.returncode == 0
        assert not [child for child in children if Path(f"/proc/{child}").exists()]


async def test_more_calls_than_may_wait_are_told_to_try_again(write_servers: WriteServers, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [str(SOAK_SERVER), str(tmp_path / "log")]}
    options = ["--mode", "transparent", "--database", "none", "--max-in-flight", "2", "--max-waiting", "1"]
    async with http_gateway(write_servers({"slow": entry}), *options) as (address, _), Client(address) as client:
        await until_up(client)
        results = await asyncio.gather(*(client.call_tool("wait", {"id": str(number)}) for number in range(6)))
        texts = [result.content[0].text for result in results]  # type: ignore[union-attr]
        assert sum(not result.is_error for result in results) == 3
        assert sum("is busy" in text and "Try again in about" in text for text in texts) == 3
