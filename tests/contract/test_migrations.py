"""Migrations only add, so that gateways of two versions can use one database; one that takes away says so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from mcp_optimizer.db.schema import FIRST, HEAD, MIGRATIONS, contract
from tests.contract.schema_changes import TableShape, contractions, shapes


def configured(connection: Connection, migrations: Path = MIGRATIONS) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def revisions(config: Config) -> list[str]:
    """In the order in which they are applied."""
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def wrong(connection: Connection, config: Config) -> list[str]:
    """What migrations after the first take away without saying so."""
    found: list[str] = []
    command.upgrade(config, FIRST)
    for revision in revisions(config)[1:]:
        before = shapes(connection)
        command.upgrade(config, revision)
        taken = list(contractions(before, shapes(connection)))
        oldest = connection.execute(text("SELECT revision FROM oldest_reader")).scalar()
        if taken and oldest != revision:
            found.append(f"{revision}: {'; '.join(taken)}")
    return found


def test_the_migrations_are_numbered_in_their_order(connection: Connection) -> None:
    numbers = revisions(configured(connection))
    assert (numbers[0], numbers[-1]) == (FIRST, HEAD)
    assert numbers == sorted(numbers)


def test_a_migration_only_adds_or_says_that_older_gateways_cannot_go_on(connection: Connection) -> None:
    assert wrong(connection, configured(connection)) == [], (
        "Leave it to a later release and only add now, or end older gateways first and call "
        "`contract(op.get_bind(), revision)` in the migration."
    )


LATER = """
import sqlalchemy as sa
from alembic import op
from mcp_optimizer.db.schema import contract

revision, down_revision = "{revision}", "{before}"


def upgrade() -> None:
    {change}


def downgrade() -> None:
    pass
"""

ADDS = 'op.add_column("event", sa.Column("weather", sa.Text))'
TAKES = 'op.drop_column("event", "client")'
SAYS_SO = f"{TAKES}; contract(op.get_bind(), revision)"


def with_later(folder: Path, *changes: str) -> Path:
    """The migrations, and further ones that make these changes."""
    copied = folder / "migrations"
    shutil.copytree(MIGRATIONS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    before = HEAD
    for number, change in enumerate(changes):
        revision = f"{9000 + number}"
        later = LATER.format(revision=revision, before=before, change=change)
        (copied / "versions" / f"{revision}_later.py").write_text(later)
        before = revision
    return copied


@pytest.mark.cases_in_check(1)
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([ADDS], []),
        ([ADDS, TAKES], ["9001: the column event.client is gone"]),
        ([SAYS_SO, ADDS], []),
        # What an earlier one said covers no later one.
        ([SAYS_SO, TAKES.replace("client", "server")], ["9001: the column event.server is gone"]),
    ],
)
def test_a_later_migration_that_takes_something_away_is_found(
    connection: Connection, tmp_path: Path, changes: list[str], found: list[str]
) -> None:
    assert wrong(connection, configured(connection, with_later(tmp_path, *changes))) == found


TAKEN = {
    "DROP TABLE b": "the table b is gone",
    "ALTER TABLE a DROP COLUMN y": "the column a.y is gone",
    "ALTER TABLE a RENAME COLUMN y TO z": "the column a.y is gone",
    "ALTER TABLE a ADD COLUMN z TEXT NOT NULL DEFAULT ''; ALTER TABLE a RENAME TO c": "the table a is gone",
    "CREATE UNIQUE INDEX one ON a (y)": "rows of a must fulfil something new: ['y']",
    "DROP TABLE b; CREATE TABLE b (x TEXT NOT NULL)": "the column b.x may no longer be null",
    "DROP TABLE b; CREATE TABLE b (x INTEGER)": "the column b.x has another type",
    "DROP TABLE b; CREATE TABLE b (x TEXT, y TEXT NOT NULL)": "the new column b.y must be given, and older gateways "
    "do not know it",
}


@pytest.mark.parametrize("statements", TAKEN, ids=lambda text: text[:60])
def test_what_older_gateways_would_miss_is_found(connection: Connection, statements: str) -> None:
    before = made(connection)
    for statement in statements.split(";"):
        connection.execute(text(statement))
    assert TAKEN[statements] in list(contractions(before, shapes(connection)))


def test_what_they_do_not_look_at_may_be_added(connection: Connection) -> None:
    before = made(connection)
    for statement in (
        "CREATE TABLE c (x TEXT NOT NULL UNIQUE)",
        "ALTER TABLE a ADD COLUMN z TEXT",
        "ALTER TABLE a ADD COLUMN w TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX some ON a (y)",
    ):
        connection.execute(text(statement))
    assert list(contractions(before, shapes(connection))) == []


def test_a_contraction_raises_the_oldest_schema_that_may_read(connection: Connection) -> None:
    command.upgrade(configured(connection), HEAD)
    contract(connection, "9998")
    assert connection.execute(text("SELECT revision FROM oldest_reader")).all() == [("9998",)]


def made(connection: Connection) -> dict[str, TableShape]:
    for statement in ("CREATE TABLE a (x TEXT PRIMARY KEY, y TEXT NOT NULL)", "CREATE TABLE b (x TEXT)"):
        connection.execute(text(statement))
    return shapes(connection)
