"""A secret configured for a server appears nowhere when that server fails."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client

from tests.conftest import Entry, WriteServers, plain_server
from tests.e2e.running import command, gateway_at, over_stdio, until_found

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


@pytest.mark.promise("secrets-redacted")
@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "--json"],
        ["find", "x"],
        *(pytest.param([name], marks=pytest.mark.full) for name in ("doctor", "servers", "report", "tools")),
    ],
)
async def test_no_command_shows_what_a_dying_server_says_of_its_secrets(config: Path, arguments: list[str]) -> None:
    done = await command(*arguments, "--config", config, "--log-level", "debug", "--start-timeout", 5)
    assert TOKEN not in done.out + done.err
    if arguments[0] in ("doctor", "servers"):
        assert "redacted:" in done.out


@pytest.mark.promise("secrets-redacted")
async def test_neither_the_page_nor_an_error_nor_the_log_of_a_gateway_shows_secrets(config: Path) -> None:
    async with gateway_at(config, "--database", "none", "--log-level", "info") as address:
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


@pytest.mark.promise("nothing-private-logged")
async def test_arguments_and_results_are_neither_logged_nor_kept_in_the_history(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    database, log = tmp_path / "catalog.db", tmp_path / "log"
    config = write_servers({"well": plain_server("well")})
    options = ("--database", database, "--log-level", "debug")
    with log.open("w") as written_to:
        async with over_stdio(config, *options, log=written_to) as client:
            await until_found(client, "say something back", "echo")
            said = await client.call_tool("call_tool", {"tool_name": "echo", "parameters": {"value": TOKEN}})
            assert TOKEN in str(said)
            for name, parameters in (
                ("echo", {"value": [TOKEN]}),
                ("fail", {"id": TOKEN}),
                (TOKEN, {}),
                ("die", {"id": TOKEN}),
            ):
                answer = await client.call_tool("call_tool", {"tool_name": name, "parameters": parameters})
                assert answer.is_error
    logged = log.read_text()
    assert '"tool": "echo"' in logged, "the calls are in the log"
    assert TOKEN not in logged
    written = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    assert b"tool error" in written, "the calls are in the history"
    assert TOKEN.encode() not in written
