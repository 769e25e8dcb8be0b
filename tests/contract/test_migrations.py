"""Migrations only add, so that gateways of two versions can use one database; one that takes away says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from mcp_optimizer.db.schema import HEAD, contract
from tests.contract.schema_changes import TableShape, contractions, shapes
from tests.contract.test_imports import PACKAGE

FIRST = "0011"
"""The first that gateways may be older than: those before refuse any schema that they do not know."""


def configured(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(PACKAGE / "db" / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def test_a_migration_only_adds_or_says_that_older_gateways_cannot_go_on(connection: Connection) -> None:
    config = configured(connection)
    revisions = sorted(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())
    assert revisions[-1] == HEAD
    command.upgrade(config, FIRST)
    for revision in [revision for revision in revisions if revision > FIRST]:
        before = shapes(connection)
        command.upgrade(config, revision)
        taken = list(contractions(before, shapes(connection)))
        oldest = connection.execute(text("SELECT revision FROM oldest_reader")).scalar()
        assert not taken or oldest == revision, (
            f"{revision}: {'; '.join(taken)}. Leave it to a later release and only add now, or end older gateways "
            "first and call `contract(op.get_bind(), revision)` in the migration."
        )


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
