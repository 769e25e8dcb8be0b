"""Opens the catalog: in PostgreSQL, or in a SQLite file that is created, migrated, checked, and rebuilt if unusable.

A gateway can start with a new file: servers and tools are read again, but pins, keys, secrets, scripts and history are
in the old one. So a file that is damaged, belongs to another program, or was made before the first release is moved
aside, never repaired and never deleted. Called by `storage` and by commands that run without a gateway; knows nothing
of tools.
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
from sqlalchemy.exc import DatabaseError, SQLAlchemyError
from sqlalchemy.pool import AsyncAdaptedQueuePool, QueuePool

from mcp_optimizer.config.settings import APP_NAME
from mcp_optimizer.db.engines import AsyncConnection, AsyncEngine, create_async_engine
from mcp_optimizer.db.schema import APPLICATION_ID, FIRST, ITS_REVISION, migrate, sqlite_tables, too_old
from mcp_optimizer.db.transactions import FileWriter
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.local_files import make_file, make_folder, mend
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_SMALLEST = 512
"""Bytes of SQLite's smallest page, and so of the smallest database that is not empty."""
_BUSY_TIMEOUT_MS = 5_000
_WAIT = 0.01
_WAITS_FOR_THE_LAST = 100
_BESIDE = ("-wal", "-shm")
_FOREIGN = "belongs to another program"


def _openings() -> BackgroundTasks:
    # The caller that waits for the connection gets these errors, so they are not logged.
    return BackgroundTasks(logger, "connection not opened", expected=(SQLAlchemyError, OSError))


@dataclass(frozen=True)
class Database:
    """An open catalog database, and its file, if it has one.

    `turn` is held while writing. SQLite allows one writer at a time; a writer that waited inside SQLite would hold a
    thread and a connection, and sleep up to a tenth of a second too long.
    """

    engine: AsyncEngine
    path: Path | None
    turn: AbstractAsyncContextManager[Any] = field(default_factory=asyncio.Lock)
    writer: FileWriter | None = None
    """The faster way to write to a file; None for other databases."""
    _opening: BackgroundTasks = field(default_factory=_openings)
    """Connections that are being opened, or closed because their users were cancelled."""

    async def connected(self, **options: Any) -> AsyncConnection:
        """Open a connection. Opening is completed even if the caller is cancelled meanwhile: SQLAlchemy would lose a
        connection cancelled between the pool and its options, and PostgreSQL would keep it until the next garbage
        collection.
        """
        opening = self._opening.spawn(self.engine.execution_options(**options).connect().start())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._opening.spawn(_give_back(opening))
            raise

    async def revive(self) -> None:
        """Create a new file if this one was deleted; SQLite itself would continue writing to the deleted file."""
        if self.path is None or self.path.exists():
            return
        # Take the turn, because a connection that is writing would not be closed; and check again, because another
        # writer may have created the file meanwhile.
        async with self.turn:
            if self.path.exists():
                return
            logger.warning("The catalog %s was deleted; creating a new one.", self.path)
            await self.engine.dispose()
            if self.writer is not None:
                await self.writer.disconnect()
            await asyncio.to_thread(prepare_file, self.path)

    async def close(self) -> None:
        """Close all connections. Waits briefly for cancelled users to return theirs, which would be lost otherwise."""
        pool = self.engine.pool
        for _ in range(_WAITS_FOR_THE_LAST):
            if not self._opening and not (isinstance(pool, QueuePool) and pool.checkedout()):
                break
            await asyncio.sleep(_WAIT)
        if self.writer is not None:
            await self.writer.close()
        await self.engine.dispose()


async def _give_back(opening: asyncio.Future[AsyncConnection]) -> None:
    """Close a connection once it is open."""
    await (await opening).close()


async def open_database(place: Path | str | None) -> Database:
    """Open the file or the PostgreSQL database (a URL) at `place`, or a database in memory for None."""
    if place is None:
        return await _open_in_memory()
    if isinstance(place, str):
        postgres = await asyncio.to_thread(import_module, "mcp_optimizer.db.postgres")
        await asyncio.to_thread(postgres.prepare, place)
        return Database(postgres.engine_of(place), None, contextlib.nullcontext())
    await asyncio.to_thread(prepare_file, place)
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}")
    _set_pragmas(engine.sync_engine)
    writing = create_engine(f"sqlite:///{place}")
    _set_pragmas(writing)
    return Database(engine, place, writer=FileWriter(writing))


async def _open_in_memory() -> Database:
    # The database exists only in its one connection, so users take turns.
    engine = create_async_engine(
        "sqlite+aiosqlite:///:memory:", poolclass=AsyncAdaptedQueuePool, pool_size=1, max_overflow=0
    )
    _set_pragmas(engine.sync_engine)
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        # In one go: each statement of its own would go to the driver's thread and back several times.
        await raw.driver_connection.executescript(";\n".join(sqlite_tables()))
    return Database(engine, None)


def prepare_file(path: Path) -> None:
    """Leave a usable, migrated file at `path`; moves an unusable one aside."""
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
            f"Cannot open the catalog {path}: {error.orig}. Choose another file with --database FILE, "
            "or use --database none."
        ) from error
    finally:
        engine.dispose()


def _keep_private(path: Path) -> None:
    """Make the file, SQLite's files next to it, and our own folder readable only by their owner."""
    try:
        make_file(path)
    except OSError as error:
        # SQLite itself reports it if it matters; a read-only file is still useful.
        logger.debug("catalog file not made: %s", error)
    for suffix in _BESIDE:
        mend(Path(f"{path}{suffix}"))
    if path.parent == user_data_path(APP_NAME):
        mend(path.parent)


def _why_unusable(path: Path) -> str:
    """Why the file cannot be our catalog; empty if it can or does not exist yet."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    # Do not read the file without SQLite: closing it would release all locks that this process holds on it, and another
    # process would take itself for the last user and delete the log that is still being written.
    if path.is_file() and path.stat().st_size < _SMALLEST:
        # SQLite would take a file of one byte for an empty database and overwrite it.
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
            if (revision := _revision(connection)) and revision < FIRST:
                return f"was {too_old(revision)}"
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        # A busy or unreadable file may be fine; opening it will show.
        logger.debug("catalog check skipped: %s", error)
        return ""
    except sqlite3.DatabaseError:
        return "is damaged or not a SQLite file"
    return ""


def _revision(connection: sqlite3.Connection) -> str:
    """The schema revision of the file; empty if it has none yet."""
    has_one = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
    found = connection.execute(ITS_REVISION).fetchone() if connection.execute(has_one).fetchone()[0] else None
    return str(found[0]) if found else ""


def _set_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    kept = path.with_name(f"{path.name}.unusable-{stamp}-{uuid.uuid4().hex[:6]}")
    path.rename(kept)
    # SQLite finds the write-ahead log by the file's name, so it must be renamed too.
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{kept}{suffix}")
    return kept


def _set_pragmas(engine: Engine) -> None:
    """Use WAL, so several gateways can share the file, and transactions that take the write lock when they begin."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        # The driver's implicit BEGIN would start a read transaction, which cannot always be upgraded to a writing one.
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
