"""A new database has the newest tables at once; an older one is migrated to the same."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from mcp_optimizer.db import schema
from mcp_optimizer.db.database import prepare_file
from mcp_optimizer.db.schema import HEAD
from mcp_optimizer.db.tables import metadata
from tests.contract.test_migrations import with_later

PREPARED = """
import sys
from pathlib import Path
from mcp_optimizer.db import schema
from mcp_optimizer.db.database import prepare_file
if len(sys.argv) > 2:
    schema.HEAD, schema.MIGRATIONS = "9000", Path(sys.argv[2])
prepare_file(Path(sys.argv[1]))
print("alembic" in sys.modules)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def configured() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def migrated(path: Path) -> object:
    """How the tables then differ from those that the code uses."""
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection, connection.begin():
            config = configured()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            options = {"compare_type": True, "compare_server_default": True}
            return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    finally:
        engine.dispose()


def asked(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def statements(path: Path) -> set[str]:
    return {" ".join(sql.split()) for (sql,) in asked(path, "SELECT sql FROM sqlite_master") if sql}


def contents(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {line for line in connection.iterdump() if line.startswith("INSERT")}


@pytest.mark.requirement("A3")
def test_the_migrations_make_exactly_what_a_new_file_has(path: Path, tmp_path: Path) -> None:
    prepare_file(path)
    assert migrated(other := tmp_path / "migrated.db") == []
    # Alembic compares neither CHECK constraints nor rows.
    assert statements(path) == statements(other)
    assert contents(path) == contents(other)
    assert f"INSERT INTO \"alembic_version\" VALUES('{HEAD}');" in contents(path)


@pytest.mark.process
def test_only_an_older_file_needs_alembic_which_leaves_what_is_in_it(path: Path, tmp_path: Path) -> None:
    def loads_alembic(*later: Path) -> bool:
        done = subprocess.run(
            [sys.executable, "-c", PREPARED, path, *later], capture_output=True, text=True, check=True
        )
        return done.stdout == "True\n"

    assert [loads_alembic(), loads_alembic()] == [False, False]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO gateway VALUES ('id', 'here', '1', 1, 1)")
    later = with_later(tmp_path, 'op.add_column("gateway", sa.Column("weather", sa.Text))')
    assert [loads_alembic(later), loads_alembic(later)] == [True, False]
    assert asked(path, "SELECT version_num FROM alembic_version") == [("9000",)]
    assert asked(path, "SELECT id, weather FROM gateway") == [("id", None)]


def test_head_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(configured()).get_heads() == [HEAD]
