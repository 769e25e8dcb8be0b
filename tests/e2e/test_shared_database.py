"""Several gateways on one catalog, in a file or in PostgreSQL, and gateways that are killed or cannot use it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import COMMAND, command, over_stdio, until_found
from tests.postgres import ask
from tests.waiting import until


async def test_three_gateways_share_one_catalog_and_none_disturbs_anothers_running_set(
    write_servers: WriteServers, place: Path | str
) -> None:
    entries = {name: plain_server(name, "--tools", 30) for name in ("a", "b", "c")}
    optimizers = []
    for names in (("a", "b"), ("b", "c"), ("a", "b", "c")):
        config = write_servers({name: entries[name] for name in names})
        # One file, written three times: each keeps what it started with.
        optimizers.append(Optimizer.from_config(config, database=str(place), reload=False))
    await asyncio.gather(*(optimizer.__aenter__() for optimizer in optimizers))
    try:
        first, second, third = optimizers
        assert {tool.server for tool in first.snapshot.running} == {"a", "b"}
        assert {tool.server for tool in second.snapshot.running} == {"b", "c"}
        assert len(third.snapshot.running) == 90
        await first.stop()
        assert len(third.snapshot.running) == 90
        assert (await third.find("a perform action number 7")).tools[0].name == "a_action_7"
    finally:
        await asyncio.gather(*(optimizer.stop() for optimizer in optimizers))
    database = await open_database(place)
    catalog = Catalog(database)
    assert [len(await catalog.tools(server.id)) for server in await catalog.servers()] == [30, 30, 30]
    await database.close()


async def test_a_second_start_with_unchanged_tools_counts_nothing(
    write_servers: WriteServers, place: Path | str
) -> None:
    config = write_servers({"one": plain_server("one", "--tools", 40)})
    async with Optimizer.from_config(config, database=str(place)) as first:
        baseline = first.snapshot.baseline_tokens
        assert first.ingestion.counted == 40
    async with Optimizer.from_config(config, database=str(place)) as second:
        assert second.snapshot.baseline_tokens == baseline
        assert second.ingestion.counted == 0


async def test_a_second_gateway_on_one_postgresql_takes_its_counts_from_there(
    write_servers: WriteServers, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_DATABASE", postgres_url)
    config = write_servers({"one": plain_server("one")})
    async with over_stdio(config) as client:
        await until_found(client, "draw a picture", "picture")
        await client.call_tool("call_tool", {"tool_name": "picture", "parameters": {}})
        await until(lambda: ask(postgres_url, "SELECT count(*) FROM tool") == [("9",)], timeout=15)
        # A gateway that counted the tokens itself would get a different number.
        ask(postgres_url, "UPDATE definition_tokens SET token_count = 5000")
        listed = await command("tools", "--config", config, "--json", "--fresh")
        assert {tool["tokens"] for tool in listed.json["tools"]} == {5000}
        assert (listed.code, listed.err) == (0, "")
    report = await command("report", "--config", config, "--json")
    assert [tool["tool"] for tool in report.json["usage"]["called"]] == ["picture"]


async def test_a_postgresql_that_cannot_be_used_costs_the_catalog_and_nothing_else(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    unreachable = "postgresql://me:hunter2@127.0.0.1:1/name?password=hunter2"
    for name in ("servers", "doctor", "report"):
        done = await command(name, "--config", config, "--database", unreachable, "--log-level", "debug")
        assert done.code == 0
        assert "Cannot open the catalog postgresql://127.0.0.1:1/name: " in done.err
        assert "Continuing without it" in done.err
        assert "hunter2" not in done.out + done.err
    done = await command("servers", "--config", config, "--database", "mysql://me:hunter2@host/name")
    assert done.code == 2
    assert "mysql:// is not supported" in done.err
    assert "hunter2" not in done.err


@pytest.mark.slow
async def test_a_gateway_killed_at_any_moment_leaves_a_file_that_the_next_start_uses(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    database = tmp_path / "catalog.db"
    config = write_servers({"big": plain_server("big", "--tools", 2_000)})
    random_times = random.Random(7)
    for _ in range(6):
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--config", str(config), "--database", str(database), stdin=asyncio.subprocess.PIPE
        )
        await asyncio.sleep(random_times.uniform(0.8, 2.5))
        process.kill()
        await process.wait()
        if database.exists():
            with contextlib.closing(sqlite3.connect(database)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                with contextlib.suppress(sqlite3.OperationalError):
                    # Each server is written in one transaction: all of its tools or none.
                    assert connection.execute("SELECT count(*) FROM tool").fetchone()[0] in (0, 2_000)
    done = await command("servers", "--config", config, "--database", database, "--json")
    assert done.json["servers"][0]["tools"] == 2_000
    assert done.err == ""


async def test_a_damaged_file_is_set_aside_and_rebuilt_with_a_line_that_says_so(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    database = tmp_path / "catalog.db"
    database.write_bytes(os.urandom(5_000))
    config = write_servers({"one": plain_server("one")})
    done = await command("servers", "--config", config, "--database", database, "--json")
    assert done.json["servers"][0]["tools"] == 9
    assert "is damaged or not a SQLite file" in done.err
    assert [path.stat().st_size for path in tmp_path.glob("catalog.db.unusable-*")] == [5_000]


async def test_database_none_leaves_nothing_on_disk(write_servers: WriteServers, tmp_path: Path) -> None:
    config = write_servers({"one": plain_server("one")})
    async with over_stdio(config, "--database", "none") as client:
        await until_found(client, "draw a picture", "picture")
    assert list(tmp_path.rglob("*.db*")) == []
