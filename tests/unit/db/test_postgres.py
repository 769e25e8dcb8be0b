"""PostgreSQL as the catalog: many gateways, its own schema, and nothing waits for it or reveals its password."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from mcp_optimizer import Optimizer
from mcp_optimizer.db import postgres as postgres_module
from mcp_optimizer.db.catalog import Catalog, StoredForms, StoredShapes
from mcp_optimizer.db.database import Database, open_database
from mcp_optimizer.db.history import History
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.db.postgres import SCHEMA, engine_of, shown
from mcp_optimizer.db.schema import HEAD, write_alone
from mcp_optimizer.db.tables import metadata
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.domain.kept_results import KeptResult
from mcp_optimizer.domain.tools import Definition, DefinitionForm, ServerStatus, ToolRow
from mcp_optimizer.errors import CatalogError, ConfigurationError
from tests.postgres import PASSWORD, Postgres, ask
from tests.unit.catalogs import mcp_tool
from tests.waiting import until


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


async def refusal(url: str) -> str:
    """Why a database cannot be opened. Checks that neither message nor traceback contains its password."""
    with pytest.raises(CatalogError) as caught:
        await open_database(url)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("is_migrated", [False, True], ids=["new", "migrated"])
async def test_the_tables_are_exactly_those_that_the_code_uses(is_migrated: bool, postgres_url: str) -> None:
    def differences(connection: Connection) -> object:
        options = {"compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    if is_migrated:
        # Where there is any table, the migrations make the others.
        ask(postgres_url, f"CREATE SCHEMA {SCHEMA}")
        ask(postgres_url, f"CREATE TABLE {SCHEMA}.alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
    database = await open_database(postgres_url)
    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()


@pytest.mark.parametrize("made", ["", f"CREATE SCHEMA {SCHEMA}"], ids=["nothing", "the schema"])
async def test_of_ten_gateways_that_start_together_one_migrates_whatever_is_there(made: str, postgres_url: str) -> None:
    ask(postgres_url, made)
    opened = await asyncio.gather(*(open_database(postgres_url) for _ in range(10)))
    await asyncio.gather(*(database.close() for database in opened))
    assert ask(postgres_url, "SELECT version_num FROM alembic_version") == [(HEAD,)]


async def test_a_gateway_that_starts_while_another_migrates_waits_but_not_forever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_MIGRATION_SECONDS", 0.2)
    other = postgres_module.engine_of(postgres_url)
    async with other.begin() as connection:
        await connection.run_sync(write_alone)
        assert "lock timeout" in await refusal(postgres_url)
        ask(postgres_url, f"CREATE SCHEMA {SCHEMA}")
        assert "lock timeout" in await refusal(postgres_url)
    await (await open_database(postgres_url)).close()
    await other.dispose()


async def test_tables_of_other_programs_are_left_alone(postgres_url: str) -> None:
    ask(postgres_url, "CREATE TABLE event (mine text); CREATE TABLE alembic_version (version_num text)")
    ask(postgres_url, "INSERT INTO alembic_version VALUES ('9999')")
    database = await open_database(postgres_url)
    await History(database).write([Event(at=1.0, kind=EventKind.CALL, session="s")])
    await database.close()
    assert ask(postgres_url, "SELECT version_num FROM public.alembic_version") == [("9999",)]
    assert ask(postgres_url, "SELECT count(*) FROM public.event") == [("0",)]


async def test_a_newer_schema_that_took_something_away_is_refused_and_left_as_it_is(postgres_url: str) -> None:
    await (await open_database(postgres_url)).close()
    ask(postgres_url, "UPDATE alembic_version SET version_num = '9999'; UPDATE oldest_reader SET revision = '9998'")
    assert f"newer mcp-optimizer (schema 9999, this one knows {HEAD})" in await refusal(postgres_url)


async def test_a_schema_of_before_the_first_release_is_refused_and_left_as_it_is(postgres_url: str) -> None:
    await (await open_database(postgres_url)).close()
    ask(postgres_url, "UPDATE alembic_version SET version_num = '0012'")
    said = await refusal(postgres_url)
    assert "made before the first release (schema 0012), and this version cannot read it. Rename its schema" in said
    assert ask(postgres_url, "SELECT version_num FROM alembic_version") == [("0012",)]
    ask(postgres_url, f"ALTER SCHEMA {SCHEMA} RENAME TO earlier")
    await (await open_database(postgres_url)).close()
    assert ask(postgres_url, "SELECT version_num FROM earlier.alembic_version") == [("0012",)]


async def test_a_user_who_may_not_create_a_schema_is_told_so_and_can_be_given_one(postgres_url: str) -> None:
    role = f"guest_of_{name_of(postgres_url)}"
    ask(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    url = postgres_url.replace("optimizer:", f"{role}:")
    assert "permission denied for database" in await refusal(url)
    ask(postgres_url, f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {role}")
    await (await open_database(url)).close()


async def test_gateways_that_write_the_same_things_at_once_neither_block_each_other_nor_write_them_twice(
    postgres_url: str,
) -> None:
    tools = [ToolRow(Definition.of(mcp_tool(f"tool{number}")), number) for number in range(200)]
    hashes = [row.definition.definition_hash for row in tools]
    order = random.Random(8)

    async def gateway(database: Database, number: int) -> None:
        catalog, forms, history = Catalog(database), StoredForms(database), History(database)
        kept = KeptResults(database)
        for turn in range(3):
            mixed = order.sample(hashes, len(hashes))
            await catalog.save_token_counts(dict.fromkeys(mixed, 7), "cl100k_base")
            server = await catalog.save_server("github", "f", "stdio", ServerStatus.RUNNING)
            await catalog.replace_tools(server, order.sample(tools, 150) if turn < 2 else tools)
            await forms.write([DefinitionForm(key, "{}", 1, "[]") for key in mixed], f"{number % 2}/plain")
            await forms.write_descriptions(dict.fromkeys(mixed, "text"), "writer")
            await history.write([Event(at=1.0, kind=EventKind.CALL, session="s")] * 50)
            await history.forget(before=2.0)
            result = KeptResult(f"r{number}-{turn}", "me", "row", 1, 10**10, 5)
            await kept.begin(result)
            await kept.finish(result, 5)
            await kept.forget(0 if turn else 3_600, 10)

    opened = [await open_database(postgres_url) for _ in range(6)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(gateway(database, number) for number, database in enumerate(opened)))
    for database in opened:
        await database.close()
    assert ask(postgres_url, "SELECT count(*) FROM mcpserver") == [("1",)]
    assert ask(postgres_url, "SELECT count(*) FROM tool") == [("200",)]
    assert ask(postgres_url, "SELECT count(*) FROM definition_tokens") == [("200",)]
    assert ask(postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [("0",)]


async def test_whoever_is_cancelled_while_a_connection_opens_leaves_none_behind(postgres_url: str) -> None:
    engine = engine_of(postgres_url)
    for step in range(60):
        opening = asyncio.create_task(engine.connect().start())
        await asyncio.wait({opening}, timeout=step * 0.0005)
        opening.cancel()
        [done], _ = await asyncio.wait({opening})
        if not done.cancelled():
            await done.result().close()
    await engine.dispose()
    used = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await until(lambda: ask(postgres_url, used) == [("0",)])


async def test_connections_that_the_server_ended_are_opened_again(postgres: Postgres, postgres_url: str) -> None:
    database = await open_database(postgres_url)
    catalog = Catalog(database)
    await catalog.save_token_counts({"h": 1}, "e")
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"
    ask(postgres.url("postgres"), ended.format(name_of(postgres_url)))
    assert await catalog.token_counts(["h"], "e") == {"h": 1}
    await database.close()


ALONE: dict[str, Callable[[Database], Awaitable[object]]] = {
    "tools": lambda database: Catalog(database).replace_tools("server", []),
    "forms": lambda database: StoredForms(database).write([], "1/plain"),
    "history": lambda database: History(database).forget(before=1.0),
    "results": lambda database: KeptResults(database).forget(3_600, 10),
    "shapes": lambda database: StoredShapes(database).write({"h": (1, "{}")}, 10),
}


@pytest.mark.parametrize("write", ALONE.values(), ids=ALONE)
async def test_a_gateway_that_deletes_waits_for_others_that_do_but_not_forever(
    write: Callable[[Database], Awaitable[object]], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_LOCK_SECONDS", 0.2)
    one, two = await open_database(postgres_url), await open_database(postgres_url)
    async with one.engine.begin() as connection:
        await connection.run_sync(write_alone)
        with pytest.raises(CatalogError, match="lock timeout"):
            await write(two)
    await write(two)
    await one.close()
    await two.close()


async def test_shapes_are_bounded_and_the_newest_are_read_last(postgres_url: str) -> None:
    database = await open_database(postgres_url)
    shapes = StoredShapes(database)
    for number in range(4):
        await shapes.write({f"h{number}": (number, "{}"), "always": (number, "[]")}, 3)
    assert len(found := await shapes.read(10)) == 3
    assert found["always"] == (3, "[]")
    assert "h0" not in found
    await database.close()


TOGETHER: dict[str, Callable[[Database, dict[str, int]], Awaitable[object]]] = {
    "definition_tokens (definition_hash, encoding, token_count) VALUES ('{}', 'e', 1)": (
        lambda database, keys: Catalog(database).save_token_counts(keys, "e")
    ),
    "definition_vector (definition_hash, encoder, vector) VALUES ('{}', 'e', '')": (
        lambda database, keys: Catalog(database).save_vectors(dict.fromkeys(keys, bytes(8)), "e")
    ),
    "written_description (definition_hash, writer, text) VALUES ('{}', 'e', '')": (
        lambda database, keys: StoredForms(database).write_descriptions(dict.fromkeys(keys, ""), "e")
    ),
}


@pytest.mark.parametrize(("row", "write"), TOGETHER.items(), ids=lambda value: str(value).partition(" ")[0])
async def test_two_writers_of_the_same_rows_wait_for_each_other_without_a_deadlock(
    row: str, write: Callable[[Database, dict[str, int]], Awaitable[object]], postgres_url: str
) -> None:
    one, two = await open_database(postgres_url), await open_database(postgres_url)
    async with one.engine.begin() as connection:
        await connection.exec_driver_sql(f"INSERT INTO {row.format('a')}")
        writing = asyncio.ensure_future(write(two, {"z": 1, "a": 1}))
        await until(lambda: ask(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted"))
        # If the other writer had written "z" before it waited for "a", this would be a deadlock.
        await connection.exec_driver_sql(f"INSERT INTO {row.format('z')}")
    await writing
    await one.close()
    await two.close()


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "_CONNECT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = await refusal(f"postgresql://me:{PASSWORD}@127.0.0.1:{silent.getsockname()[1]}/name")
    assert "no response within 0.2 seconds" in said


async def test_whatever_is_wrong_with_an_address_is_said_without_its_password(postgres_url: str) -> None:
    closed = f"postgresql://me:{PASSWORD}@127.0.0.1:1/name?sslmode=disable"
    assert "postgresql://127.0.0.1:1/name: [Errno 111] Connect call failed" in await refusal(closed)
    assert "password authentication failed" in await refusal(postgres_url.replace("optimizer:", "optimizer:not-"))
    assert 'database "missing" does not exist' in await refusal(postgres_url.replace(name_of(postgres_url), "missing"))
    assert 'parameter "colour"' in await refusal(f"{postgres_url}?colour=blue")
    assert "--database" in await refusal(f"postgresql://me:{PASSWORD}@127.0.0.1:port/name")


def test_an_address_is_shown_without_user_password_and_options() -> None:
    assert shown("postgresql://me:secret@one:1,two/name?password=secret") == "postgresql://one:1,two/name"
    assert shown("postgres:///name?host=/run/postgresql") == "postgresql:///name"


def test_without_the_driver_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {}}')
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mcp-optimizer-gateway\[postgres\]'"):
        Optimizer.from_config(config, database="postgresql://host/name")
