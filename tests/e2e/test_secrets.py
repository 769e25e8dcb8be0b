"""What was configured as a secret of a server is shown nowhere when that server fails."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client

from tests.conftest import Entry, WriteServers
from tests.e2e.running import command, http_gateway

TOKEN = "tok-4f3c2b1a-9d8e"
LEAKY = """
import os, sys
print("fatal: the key", os.environ["API_TOKEN"], "and", sys.argv[1:], "were refused", file=sys.stderr)
sys.exit(3)
"""
GARBLED = """
import os, time
for _ in range(200):
    print("starting with", os.environ["API_TOKEN"], flush=True)
time.sleep(30)
"""


def entry(code: str) -> Entry:
    return {"command": sys.executable, "args": ["-c", code, "--password", TOKEN], "env": {"API_TOKEN": TOKEN}}


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"leaky": entry(LEAKY), "garbled": entry(GARBLED)})


@pytest.mark.parametrize(
    "arguments", [["doctor"], ["doctor", "--json"], ["servers"], ["report"], ["find", "x"], ["tools"]]
)
async def test_no_command_shows_what_a_dying_server_says_of_its_secrets(config: Path, arguments: list[str]) -> None:
    done = await command(*arguments, "--config", config, "--log-level", "debug", "--start-timeout", 5)
    assert TOKEN not in done.out + done.err
    if arguments[0] in ("doctor", "servers"):
        assert "redacted:" in done.out


async def test_neither_the_page_nor_an_error_nor_the_log_of_a_gateway_shows_them(config: Path) -> None:
    async with http_gateway(config, "--database", "none", "--log-level", "info") as (address, _):
        async with Client(address) as client, httpx2.AsyncClient() as http:
            arguments = {"tool_name": "x", "server_name": "leaky", "parameters": {}}
            seen = ""
            for _ in range(200):
                seen = str(await client.call_tool("call_tool", arguments))
                if "redacted" in seen:
                    break
            page = (await http.get(address.removesuffix("mcp"))).text
        assert "[redacted: API_TOKEN]" in seen
        assert TOKEN not in seen
        assert TOKEN not in page
