"""A stored secret reaches its server, and nothing that anybody can read."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from mcp_optimizer.identity.secrets import opened_secrets
from tests.conftest import PLAIN_SERVER, Entry, WriteServers
from tests.e2e.running import command, over_stdio, until_found

TOKEN = "stored-7c9e6679f742"
LEAKY = """
import os, sys
print("fatal: refused", os.environ["SETTING"], sys.argv[1:], file=sys.stderr)
sys.exit(3)
"""
CHECKED = f"""
import os, runpy, sys
assert os.environ["SETTING"] == sys.argv[2] == {TOKEN!r}
assert not [name for name in os.environ if name.startswith("MCP_OPTIMIZER_SECRET")]
sys.argv = [{str(PLAIN_SERVER)!r}, "well"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def entry(code: str) -> Entry:
    return {
        "command": sys.executable,
        "args": ["-c", code, "--mode", "${secret:setting}"],
        "env": {"SETTING": "${secret:setting}"},
    }


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "catalog.db"


@pytest.fixture
async def config(write_servers: WriteServers, database: Path) -> Path:
    async with opened_secrets(database, {}) as secrets:
        await secrets.set("setting", TOKEN)
    return write_servers({"leaky": entry(LEAKY), "well": entry(CHECKED)})


def in_files(database: Path) -> bytes:
    return b"".join(path.read_bytes() for path in database.parent.glob("catalog.db*"))


@pytest.mark.promise("secrets-redacted")
@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "--json"],
        *(
            pytest.param(command, marks=pytest.mark.full)
            for command in (["servers", "--json"], ["doctor"], ["report", "--json"])
        ),
    ],
)
async def test_no_command_shows_a_stored_secret(config: Path, database: Path, arguments: list[str]) -> None:
    done = await command(*arguments, "--config", config, "--database", database, "--log-level", "debug")
    assert TOKEN not in done.out + done.err
    if arguments[0] != "report":
        assert "[redacted: setting]" in done.out, "the failing server said it"
        assert "running" in done.out or "up in" in done.out, "the other server got it"
    for planted in (TOKEN.encode(), base64.b64encode(TOKEN.encode()).rstrip(b"=")):
        assert planted not in in_files(database)


@pytest.mark.promise("secrets-redacted")
async def test_a_gateway_neither_logs_nor_stores_it(config: Path, database: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as written_to:
        async with over_stdio(config, "--database", database, "--log-level", "debug", log=written_to) as client:
            await until_found(client, "say something back", "echo")
            failed = await client.call_tool("call_tool", {"tool_name": "x", "server_name": "leaky", "parameters": {}})
            listed = await client.call_tool("list_tools", {})
            while_open = in_files(database)
    assert TOKEN not in str(failed) + str(listed) + log.read_text()
    assert b"valuesetting" in while_open
    assert b"echo" in in_files(database)
    assert TOKEN.encode() not in while_open + in_files(database)


async def test_a_missing_secret_or_database_stops_only_the_servers_that_need_it(
    write_servers: WriteServers, database: Path
) -> None:
    config = write_servers(
        {"it": entry(CHECKED), "plain": {"command": sys.executable, "args": [str(PLAIN_SERVER), "p"]}}
    )
    for place, said in ((database, "run `mcp-optimizer secret set setting`"), ("none", "--database none")):
        done = await command("doctor", "--json", "--config", config, "--database", place)
        it, plain = done.json["servers"]
        assert said in it["reason"]
        assert it["failure"] == "secret"
        assert "same --database" in it["advice"]
        assert plain["status"] == "running"


async def test_a_lost_key_stops_only_the_servers_that_need_it(config: Path, database: Path) -> None:
    (database.parent / "secrets-catalog.db.key").write_text("")
    done = await command("servers", "--json", "--config", config, "--database", database)
    assert "is damaged" in done.out
    assert done.code == 0
    assert "Traceback" not in done.err
