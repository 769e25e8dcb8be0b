"""Several gateways of one user on one catalog file, and gateways that are killed while they write it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import COMMAND, command, over_stdio, until_found


async def test_three_gateways_share_one_file_and_none_disturbs_anothers_running_set(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    database = tmp_path / "shared.db"
    entries = {name: plain_server(name, "--tools", 30) for name in ("a", "b", "c")}
    optimizers = []
    for names in (("a", "b"), ("b", "c"), ("a", "b", "c")):
        config = write_servers({name: entries[name] for name in names})
        optimizers.append(Optimizer.from_config(config, database=str(database)))
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
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT count(*) FROM mcpserver").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM tool").fetchone() == (90,)


async def test_a_second_start_with_unchanged_tools_counts_nothing(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one", "--tools", 40)})
    async with Optimizer.from_config(config) as first:
        baseline = first.snapshot.baseline_tokens
        assert first.ingestion.counted == 40
    async with Optimizer.from_config(config) as second:
        assert second.snapshot.baseline_tokens == baseline
        assert second.ingestion.counted == 0


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
                    # One transaction a server: all of its tools, or none.
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
