"""Migrates a database to the newest schema, in the same way for SQLite and PostgreSQL.

A new database gets the newest tables at once, without loading Alembic; tests check that the migrations make the same
tables. Migrations expand first and contract later: most only add things that older gateways ignore, so gateways of two
versions can use one database during a rolling upgrade. A migration that removes something calls `contract`, and comes a
release after the code that needed it. `tests/contract/test_migrations.py` checks that. Called by the code that opens a
database, inside its transaction; knows neither files nor addresses.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from threading import Lock

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_mock_engine,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.engine.mock import MockConnection

from mcp_optimizer.db.tables import metadata, oldest_reader
from mcp_optimizer.errors import CatalogError

logger = logging.getLogger(__name__)

FIRST = "0017"
"""The schema of the first release. No migration leads to it from an older one."""

HEAD = "0020"
"""The newest migration; a database already at it opens without loading Alembic."""

MIGRATIONS = Path(__file__).parent / "migrations"

OLDEST_READER = "0017"
"""The oldest schema whose gateways can use a new database: that of the last migration that calls `contract`, if any."""

APPLICATION_ID = 0x4D43504F
"""Marks a SQLite file, and a lock in PostgreSQL, as ours ("MCPO")."""

ITS_REVISION = "SELECT version_num FROM alembic_version"

_one_migration = Lock()
"""Alembic has one context per process, and databases are opened in threads."""


def migrate(connection: Connection) -> None:
    """Migrate the schema to `HEAD` inside the caller's transaction, so a kill leaves all or nothing.

    Call it in a thread, because it may have to wait for another gateway.
    """
    if _needs_nothing(connection):
        return
    if connection.dialect.name == "postgresql":
        # If many gateways start together, one migrates; the others wait and then have nothing to do.
        write_alone(connection)
        if _needs_nothing(connection):
            return
    if inspect(connection).get_table_names():
        _upgrade(connection)
    else:
        _create(connection)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


@cache
def sqlite_tables() -> tuple[str, ...]:
    """The statements that create all tables in an empty SQLite database."""
    statements: list[str] = []
    engine: MockConnection = create_mock_engine(
        "sqlite://", lambda statement, *_, **__: statements.append(str(statement.compile(dialect=engine.dialect)))
    )
    metadata.create_all(engine, checkfirst=False)
    return tuple(statements)


def _create(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        for statement in sqlite_tables():
            connection.exec_driver_sql(statement)
    else:
        metadata.create_all(connection, checkfirst=False)
    connection.execute(oldest_reader.insert(), {"revision": OLDEST_READER})
    # The same table that Alembic would make, because Alembic reads it at the next upgrade.
    version = Table("alembic_version", MetaData(), Column("version_num", String(32), nullable=False))
    version.append_constraint(PrimaryKeyConstraint("version_num", name="alembic_version_pkc"))
    version.create(connection)
    connection.execute(version.insert(), {"version_num": HEAD})


def _upgrade(connection: Connection) -> None:
    # Alembic takes over half a second and 14 MB to load, so it is imported only when there is something to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _one_migration:
        command.upgrade(config, "head")


def write_alone(connection: Connection) -> None:
    """Make other callers of this function wait until the transaction ends. SQLite allows only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(APPLICATION_ID)))


def contract(connection: Connection, revision: str) -> None:
    """Make gateways older than `revision` refuse the database; for a migration that removes something they use.

    Gateways that already have the database open do not notice, so they must be stopped before such an upgrade.
    """
    connection.execute(text("UPDATE oldest_reader SET revision = :revision"), {"revision": revision})


def _needs_nothing(connection: Connection) -> bool:
    """Whether the database is at `HEAD`, or newer but usable; raises CatalogError if it is too old or too new."""
    if not inspect(connection).has_table("alembic_version"):
        return False
    revision = connection.execute(text(ITS_REVISION)).scalar()
    if revision is not None and revision < FIRST:
        is_schema = connection.dialect.name == "postgresql"
        move = "Rename its schema (ALTER SCHEMA mcp_optimizer RENAME TO another_name)" if is_schema else "Move it away"
        raise CatalogError(f"The catalog was {too_old(revision)}. {move}, or choose another database with --database.")
    if revision is None or revision < HEAD:
        return False
    if revision > HEAD and _oldest_reader(connection, revision) > HEAD:
        raise CatalogError(
            f"The catalog was written by a newer mcp-optimizer (schema {revision}, this one knows {HEAD}) and is no "
            "longer readable for this one. Upgrade mcp-optimizer, or choose another database with --database."
        )
    if revision > HEAD:
        logger.info("The catalog has the newer schema %s, which only adds to %s; it is used.", revision, HEAD)
    return True


def too_old(revision: str) -> str:
    """The part of an error message about a database made before the first release."""
    return f"made before the first release (schema {revision}), and this version cannot read it"


def _oldest_reader(connection: Connection, revision: str) -> str:
    """The oldest schema whose gateways can use this database; its own schema if none is recorded."""
    if not inspect(connection).has_table("oldest_reader"):
        return revision
    return str(connection.execute(text("SELECT max(revision) FROM oldest_reader")).scalar() or revision)
