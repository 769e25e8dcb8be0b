"""Opens the catalog: in PostgreSQL, or a SQLite file that is made, migrated, checked, and rebuilt if it is not usable.

The file is disposable: losing it loses nothing that the next start does not find out again. A file that is
damaged or is not ours is therefore set aside, never repaired and never deleted. Called by the composition
root; knows nothing of tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import uuid
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from platformdirs import user_data_path
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from mcp_optimizer.db.private_files import make_file, make_folder, mend
from mcp_optimizer.db.schema import APPLICATION_ID, migrate
from mcp_optimizer.db.tables import metadata
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.settings import APP_NAME

logger = logging.getLogger(__name__)

_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_MS = 5_000
_BESIDE = ("-wal", "-shm")
_FOREIGN = "belongs to another program"


@dataclass(frozen=True)
class Database:
    """An open catalog database, and the file behind it, if it is one.

    `turn` is held while something is written. SQLite has one writer at a time: whoever of this process waited in
    SQLite itself would hold a thread and a connection, and sleep for up to a tenth of a second too long.
    """

    engine: AsyncEngine
    path: Path | None
    turn: AbstractAsyncContextManager[Any] = field(default_factory=asyncio.Lock)

    async def revive(self) -> None:
        """Begin a new file if this one was deleted under us; SQLite itself would go on writing into nowhere."""
        if self.path is None or self.path.exists():
            return
        logger.warning("The catalog %s was deleted; creating a new one.", self.path)
        await self.engine.dispose()
        await asyncio.to_thread(prepare_file, self.path)

    async def close(self) -> None:
        await self.engine.dispose()


async def open_database(place: Path | str | None) -> Database:
    """Open the file or the PostgreSQL database (by its URL) at `place`, or a database in memory for None."""
    if place is None:
        return await _open_in_memory()
    if isinstance(place, str):
        postgres = await asyncio.to_thread(import_module, "mcp_optimizer.db.postgres")
        await asyncio.to_thread(postgres.prepare, place)
        return Database(postgres.engine_of(place), None, contextlib.nullcontext())
    await asyncio.to_thread(prepare_file, place)
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}")
    _set_pragmas(engine.sync_engine)
    return Database(engine, place)


async def _open_in_memory() -> Database:
    # One connection is the database; whoever else needs it waits for its turn.
    engine = create_async_engine(
        "sqlite+aiosqlite:///:memory:", poolclass=AsyncAdaptedQueuePool, pool_size=1, max_overflow=0
    )
    _set_pragmas(engine.sync_engine)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    return Database(engine, None)


def prepare_file(path: Path) -> None:
    """Leave a usable, migrated file at `path`, setting aside what is there if it is not."""
    try:
        make_folder(path.parent)
    except OSError as error:
        raise CatalogError(
            f"Cannot create the catalog's folder {path.parent}: {error.strerror}. "
            "Choose another file with --database FILE, or use --database none."
        ) from error
    problem = _why_unusable(path)
    if problem:
        kept = _set_aside(path)
        if problem != _FOREIGN:
            mend(kept)
        logger.warning("The catalog %s %s; moved it to %s and rebuilding.", path, problem, kept.name)
    _keep_private(path)
    engine = create_engine(f"sqlite:///{path}")
    _set_pragmas(engine)
    try:
        with engine.connect() as connection, connection.begin():
            migrate(connection)
    except DatabaseError as error:
        raise CatalogError(
            f"Cannot open the catalog {path}: {error.orig}. Choose another place with --database FILE, "
            "or --database none."
        ) from error
    finally:
        engine.dispose()


def _keep_private(path: Path) -> None:
    """The file and those that SQLite puts beside it, which take their permissions from it; and the folder, if ours."""
    try:
        make_file(path)
    except OSError as error:
        # Said by SQLite itself, where it matters: a file that may only be read is still of use.
        logger.debug("catalog file not made: %s", error)
    for suffix in _BESIDE:
        mend(Path(f"{path}{suffix}"))
    if path.parent == user_data_path(APP_NAME):
        mend(path.parent)


def _why_unusable(path: Path) -> str:
    """Why the file cannot serve as our catalog; empty when it can, or when there is none yet."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    if path.is_file() and not _begins_like_sqlite(path):
        # SQLite itself would take a file of a few bytes for an empty database, and write over it.
        return "is damaged or not a SQLite file"
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=_BUSY_TIMEOUT_MS / 1000)
        try:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application_id != APPLICATION_ID and tables:
                return _FOREIGN
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                return "is damaged"
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        # Busy or not permitted says nothing about the content: leave it to the real opening.
        logger.debug("catalog check skipped: %s", error)
        return ""
    except sqlite3.DatabaseError:
        return "is damaged or not a SQLite file"
    return ""


def _begins_like_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return True


def _set_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    kept = path.with_name(f"{path.name}.unusable-{stamp}-{uuid.uuid4().hex[:6]}")
    path.rename(kept)
    # What is in the log belongs to the file, and is found beside it under its name.
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{kept}{suffix}")
    return kept


def _set_pragmas(engine: Engine) -> None:
    """WAL so that several gateways share the file, and transactions that take the write lock at once."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        # The driver's own implicit BEGIN would start a read transaction that cannot always be upgraded.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        # Also called for a reader in AUTOCOMMIT, which takes no lock.
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
