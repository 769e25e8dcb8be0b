"""The catalog's file is made by migrations, shared and disposable; a file found in its place is never destroyed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database, prepare_file
from mcp_optimizer.db.schema import APPLICATION_ID, HEAD
from mcp_optimizer.errors import CatalogError
from tests.unit.catalogs import mcp_tool
from tests.unit.db.filling import fill, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "catalog.db"


def asked(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


async def test_a_new_file_is_ours_in_wal_mode_and_at_the_newest_migration(path: Path) -> None:
    async with opened(path):
        assert asked(path, "PRAGMA journal_mode") == [("wal",)]
        assert asked(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
        assert asked(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]


@pytest.mark.requirement("A3", "DM-table", "R-5")
def test_the_tool_table_is_that_of_the_data_model(path: Path) -> None:
    prepare_file(path)
    columns = {name: (kind, bool(required)) for _, name, kind, required, _, _ in asked(path, "PRAGMA table_info(tool)")}
    expected = {
        "id": ("TEXT", True),
        "mcpserver_id": ("TEXT", True),
        "details": ("TEXT", True),
        "details_embedding": ("BLOB", True),
        "token_count": ("INTEGER", True),
        "last_updated": ("DATETIME", False),
        "created_at": ("DATETIME", False),
    }
    assert columns.items() >= expected.items()
    assert [(key[2], key[3], key[4], key[6]) for key in asked(path, "PRAGMA foreign_key_list(tool)")] == [
        ("mcpserver", "mcpserver_id", "id", "CASCADE")
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO mcpserver (id, name, fingerprint, transport, status) VALUES ('s','s','','','')")
        connection.execute(
            "INSERT INTO tool (id, mcpserver_id, details, details_embedding, definition_hash) "
            "VALUES ('t', 's', '{}', x'', '')"
        )
        stored = connection.execute("SELECT token_count, last_updated, created_at FROM tool").fetchone()
    assert stored[0] == 0
    assert stored[1]
    assert stored[2]


@pytest.mark.requirement("A3")
async def test_a_file_that_was_deleted_is_made_anew(path: Path) -> None:
    async with opened(path) as catalog:
        await fill(catalog)
    path.unlink()
    async with opened(path) as catalog:
        assert await catalog.servers() == []
        await fill(catalog)


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE diary (entry TEXT)")
        connection.execute("INSERT INTO diary VALUES ('dear diary')")
        connection.commit()


def filled(path: Path) -> None:
    prepare_file(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = [(f"{number:064}", "cl100k_base", number) for number in range(300)]
        connection.executemany("INSERT INTO definition_tokens VALUES (?, ?, ?)", rows)
        connection.commit()


def truncated_to(share: float) -> Any:
    def spoil(path: Path) -> None:
        filled(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])

    return spoil


def overwritten_page(path: Path) -> None:
    filled(path)
    whole = bytearray(path.read_bytes())
    whole[4096:8192] = b"\xa5" * 4096
    path.write_bytes(whole)


def made_before_the_first_release(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0012'")
        connection.execute("PRAGMA journal_mode = DELETE")


SPOILS = {
    "text": lambda path: path.write_text("this is not a database, but somebody's notes" * 40),
    "short text": lambda path: path.write_text("x"),
    "another program's database": foreign_database,
    "cut in half": truncated_to(0.5),
    "cut at the end": truncated_to(0.95),
    "cut after a few bytes": truncated_to(0.003),
    "a page overwritten": overwritten_page,
    "made before the first release": made_before_the_first_release,
    "only the header left": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 84),
}


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
async def test_what_is_not_our_catalog_is_set_aside_whole_and_a_new_one_begun(
    spoil: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir(parents=True)
    spoil(path)
    content = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        async with opened(path) as catalog:
            await fill(catalog)
            assert [server.name for server in await catalog.servers()] == ["github"]
    (kept,) = path.parent.glob("catalog.db.unusable-*")
    assert kept.read_bytes() == content
    (said,) = [record.getMessage() for record in caplog.records]
    assert str(path) in said
    assert kept.name in said
    assert "rebuilding" in said


async def test_what_another_program_has_not_yet_written_back_is_kept_with_its_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    foreign_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("INSERT INTO diary VALUES ('only in the write-ahead log')")
        async with opened(path):
            pass
        (kept,) = [name for name in path.parent.glob("catalog.db.unusable-*") if not name.name.endswith(("wal", "shm"))]
        assert len(asked(kept, "SELECT * FROM diary")) == 2


def test_an_empty_file_is_simply_filled(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir(parents=True)
    path.touch()
    prepare_file(path)
    assert asked(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert [entry.name for entry in path.parent.iterdir() if "unusable" in entry.name] == []
    assert caplog.records == []


async def test_a_file_of_before_the_first_release_is_set_aside_with_a_line_that_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir(parents=True)
    made_before_the_first_release(path)
    await (await open_database(path)).close()
    (kept,) = path.parent.glob("catalog.db.unusable-*")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        f"The catalog {path} was made before the first release (schema 0012), and this version cannot read it; moved "
        f"it to {kept.name} and rebuilding."
    )
    assert asked(kept, "SELECT version_num FROM alembic_version") == [("0012",)]
    assert asked(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]


async def test_a_newer_file_that_took_something_away_is_refused_and_left_as_it_is(path: Path) -> None:
    prepare_file(path)
    with closing(sqlite3.connect(path)) as connection:
        newer = "UPDATE alembic_version SET version_num = '9999'; UPDATE oldest_reader SET revision = '9998'"
        connection.executescript(newer)
    with pytest.raises(CatalogError, match=rf"newer mcp-optimizer \(schema 9999, this one knows {HEAD}\).*--database"):
        await open_database(path)
    assert asked(path, "SELECT version_num FROM alembic_version") == [("9999",)]
    assert not list(path.parent.glob("*unusable*"))


async def test_a_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CatalogError, match=r"folder .*file.*--database FILE, or use --database none"):
        await open_database(tmp_path / "file" / "catalog.db")


async def test_a_file_that_cannot_be_made_is_an_error_that_says_what_to_do(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(CatalogError, match=r"Cannot open the catalog .*--database FILE, or use --database none"):
        await open_database(path)


@pytest.mark.parametrize("leave", [(), ("-wal", "-shm")], ids=["with all its files", "but not what belongs to it"])
async def test_a_file_deleted_while_it_is_open_is_begun_anew_before_the_next_write(
    leave: tuple[str, ...], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as catalog:
        await fill(catalog, "before")
        for suffix in {"", "-wal", "-shm"} - set(leave):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        await catalog.revive()
        await fill(catalog, "after")
        assert [server.name for server in await catalog.servers()] == ["after"]
    assert asked(path, "SELECT name FROM mcpserver") == [("after",)]
    assert "was deleted; creating a new one" in caplog.text


async def test_a_file_that_is_still_there_is_not_begun_anew(path: Path) -> None:
    async with opened(path) as catalog:
        await fill(catalog)
        await catalog.revive()
        assert len(await catalog.servers()) == 1


async def test_without_a_database_nothing_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(None) as catalog:
        server_id = await fill(catalog)
        await catalog.revive()
        assert len(await catalog.tools(server_id)) == 2
        assert list(tmp_path.iterdir()) == []
    async with opened(None) as catalog:
        assert await catalog.servers() == []


@pytest.mark.parametrize("in_memory", [True, False])
async def test_many_tasks_use_one_catalog_at_once(in_memory: bool, place: Path | str) -> None:
    async with opened(None if in_memory else place) as catalog:
        ids = await asyncio.gather(*(fill(catalog, f"server{number}") for number in range(12)))
        counts = await asyncio.gather(*(catalog.tools(server_id) for server_id in ids))
        assert [len(tools) for tools in counts] == [2] * 12


async def test_several_databases_are_made_at_once(tmp_path: Path, postgres_url: str) -> None:
    places: list[Path | str | None] = [postgres_url, *(tmp_path / f"{number}.db" for number in range(4))]
    opened = await asyncio.gather(*map(open_database, places))
    for database in opened:
        assert await fill(Catalog(database))
        await database.close()


async def test_two_catalogs_share_one_database(place: Path | str) -> None:
    async with opened(place) as one, opened(place) as two:
        server_id = await fill(one)
        assert [tool.details.name for tool in await two.tools(server_id)] == ["a", "b"]
        assert await fill(two, "github", mcp_tool("a")) == server_id
        assert [tool.details.name for tool in await one.tools(server_id)] == ["a"]
        ids = await asyncio.gather(*(fill(catalog, f"server{number}") for number in range(6) for catalog in (one, two)))
        assert len(set(ids)) == 6
        assert len(await one.servers()) == len(await two.servers()) == 7


async def test_a_reader_does_not_wait_for_a_writer_nor_hold_one_up(path: Path) -> None:
    async with opened(path) as catalog:
        await fill(catalog)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM tool")
            async with asyncio.timeout(2):
                (server,) = await catalog.servers()
                assert len(await catalog.tools(server.id)) == 2
            writer.execute("COMMIT")
        assert await catalog.tools(server.id) == []


async def test_writers_of_one_process_take_turns_with_a_file(path: Path) -> None:
    database = await open_database(path)
    most = 0

    @event.listens_for(database.engine.sync_engine, "checkout")
    def _watch(*_: Any) -> None:
        nonlocal most
        most = max(most, database.engine.sync_engine.pool.checkedout())  # type: ignore[attr-defined]

    catalog = Catalog(database)
    await asyncio.gather(*(fill(catalog, f"server{number}") for number in range(8)))
    assert most == 1
    assert len(await catalog.servers()) == 8
    await database.close()
