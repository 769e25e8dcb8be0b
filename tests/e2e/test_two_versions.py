"""Gateways of two versions on one catalog: the newer one only added to its schema, so the older ones go on."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.db import schema
from tests.conftest import WriteServers, plain_server
from tests.contract.test_migrations import ADDS, with_later
from tests.postgres import ask
from tests.waiting import until

NEWER = (
    "ALTER TABLE event ADD COLUMN weather TEXT",
    "ALTER TABLE kept_result ADD COLUMN weather TEXT NOT NULL DEFAULT 'fair'",
    "CREATE TABLE weather (day TEXT PRIMARY KEY)",
    "CREATE INDEX ix_event_weather ON event (weather)",
    "UPDATE alembic_version SET version_num = '9999'",
)
"""What the migrations of a later release may do."""

LARGE = {"max_tokens": 300, "preview_tokens": 200}


def run(place: Path | str, *statements: str) -> None:
    """As another gateway would, in one transaction."""
    if isinstance(place, str):
        ask(place, "; ".join(statements))
        return
    with contextlib.closing(sqlite3.connect(place, timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def read(place: Path | str, question: str) -> list[tuple[str, ...]]:
    if isinstance(place, str):
        return ask(place, question)
    with contextlib.closing(sqlite3.connect(place)) as connection:
        return [tuple(map(str, row)) for row in connection.execute(question).fetchall()]


async def use(optimizer: Optimizer) -> None:
    """A search, and a result that is cut and read: both write, and reading finds what was written."""
    assert (await optimizer.find("say something back")).tools[0].name == "echo"
    result = await optimizer.call("echo", {"value": "a line of text\n" * 1_000})
    [kept] = set(re.findall(r'read_result\(result_id="(\w+)"', str(result["content"])))
    assert "a line of text" in str(await optimizer.read_result(kept, search="line"))


async def test_an_older_gateway_goes_on_and_starts_again_while_the_schema_becomes_newer(
    write_servers: WriteServers, place: Path | str, caplog: pytest.LogCaptureFixture
) -> None:
    config = write_servers({"one": plain_server("one")})
    options = {"database": str(place), **LARGE}
    async with Optimizer.from_config(config, **options) as running:
        await use(running)
        await until(lambda: read(place, "SELECT count(*) FROM event") >= [("2",)])
        # In a thread, because the gateway may be in the middle of a transaction, which it ends in this event loop.
        await asyncio.to_thread(run, place, *NEWER)
        await use(running)
        async with Optimizer.from_config(config, **options) as started_after:
            await use(started_after)
            assert (await started_after.storage.catalog()) is not None
            assert started_after.ingestion.counted == 0
    assert read(place, "SELECT version_num FROM alembic_version") == [("9999",)]
    assert int(read(place, "SELECT count(*) FROM event")[0][0]) >= 6
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_an_older_gateway_that_runs_on_a_catalog_does_not_keep_a_newer_one_from_migrating_it(
    write_servers: WriteServers, place: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_servers({"one": plain_server("one")})
    async with Optimizer.from_config(config, database=str(place), **LARGE) as older:
        await use(older)
        # A later release, in the same process: the one that is open never looks at these again.
        monkeypatch.setattr(schema, "MIGRATIONS", with_later(tmp_path, ADDS))
        monkeypatch.setattr(schema, "HEAD", "9000")
        async with Optimizer.from_config(config, database=str(place), **LARGE) as newer:
            await use(newer)
            await use(older)
            await use(newer)
    assert read(place, "SELECT version_num FROM alembic_version") == [("9000",)]
    assert read(place, "SELECT count(weather) FROM event") == [("0",)]
