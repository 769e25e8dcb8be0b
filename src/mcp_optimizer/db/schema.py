"""Migrates a database to the newest schema, in the same way for SQLite and PostgreSQL.

Called by the code that opens a database, inside its transaction; knows neither files nor addresses.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, func, inspect, select, text

from mcp_optimizer.errors import CatalogError

HEAD = "0010"
"""The newest migration; a database already at it opens without loading Alembic."""

APPLICATION_ID = 0x4D43504F
"""Marks a SQLite file, and a lock in PostgreSQL, as ours ("MCPO")."""

_one_migration = Lock()
"""Alembic has one context per process, and databases are opened in threads."""


def migrate(connection: Connection) -> None:
    """Migrate the schema to `HEAD` inside the caller's transaction, so a kill leaves all or nothing.

    Run in a thread: it may have to wait for another gateway.
    """
    if _is_newest(connection):
        return
    if connection.dialect.name == "postgresql":
        # Of many gateways that start together one migrates; the others wait and find it done.
        write_alone(connection)
        if _is_newest(connection):
            return
    # Alembic takes over half a second to load, so only here, and only when there is something to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _one_migration:
        command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def write_alone(connection: Connection) -> None:
    """Keep other gateways from doing the same until the transaction ends. SQLite has only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(APPLICATION_ID)))


def _is_newest(connection: Connection) -> bool:
    if not inspect(connection).has_table("alembic_version"):
        return False
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is not None and revision > HEAD:
        raise CatalogError(
            f"The catalog was written by a newer mcp-optimizer (schema {revision}, this one knows {HEAD}). "
            "Upgrade mcp-optimizer, or choose another database with --database."
        )
    return bool(revision == HEAD)
