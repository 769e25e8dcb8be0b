"""Announcements among gateways on one SQLite file: rows of a table, which everybody reads when the file has changed.

SQLite says in microseconds whether another connection has written, so what is kept can be checked each time it is used.
Called by `announcing` in the event loop; knows no announcement.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer.errors import CatalogError

if TYPE_CHECKING:
    from mcp_optimizer.db.announced import StoredAnnouncements

_PAUSE = 0.5
"""Seconds between two looks when nobody asks."""

_MOST = 1_000
"""Rows read at once; whoever is so far behind has missed some."""


class FileLink:
    """Hears others whenever it is asked, and every half second."""

    def __init__(
        self,
        path: Path,
        stored: Callable[[], Awaitable[StoredAnnouncements | None]],
        heard: Callable[[object], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._path = path
        self._stored = stored
        self._heard = heard
        self._reconnected = reconnected
        self._file: sqlite3.Connection | None = None
        self._version = self._last = -1

    def is_current(self) -> bool:
        """Reads what is new. The file may be locked or gone, and then nobody knows."""
        if self._file is None:
            return False
        try:
            self._look(self._file)
        except sqlite3.Error:
            self._close()
            return False
        return True

    async def send(self, bodies: Sequence[str]) -> None:
        if (stored := await self._stored()) is None:
            raise CatalogError("the database is not open")
        await stored.add(bodies)

    async def run(self) -> None:
        try:
            while True:
                if self._file is None and await self._stored() is not None:
                    with contextlib.suppress(sqlite3.Error):
                        self._open()
                else:
                    self.is_current()
                await asyncio.sleep(_PAUSE)
        finally:
            self._close()

    def _open(self) -> None:
        # Without patience: the event loop must not wait for a lock.
        file = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=0, isolation_level=None)
        try:
            row = file.execute("SELECT coalesce(max(id), 0) FROM announcement").fetchone()
        except sqlite3.Error:
            file.close()
            raise
        self._file, self._last, self._version = file, row[0], -1
        self._reconnected()

    def _look(self, file: sqlite3.Connection) -> None:
        version = file.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        query = "SELECT id, body FROM announcement WHERE id > ? ORDER BY id LIMIT ?"
        rows = file.execute(query, (self._last, _MOST)).fetchall()
        self._version = version
        if len(rows) == _MOST or not self._path.exists():
            self._close()
            return
        for number, body in rows:
            self._last = number
            self._heard(body)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
