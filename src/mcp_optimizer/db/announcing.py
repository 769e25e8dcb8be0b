"""Announces changes to other gateways on the same database, and receives their announcements.

Called by parts that keep data which another gateway can make out of date. A request waits a second at most; after a
failure, a change of everything is announced once the database answers again. On a SQLite file, announcements are rows
that each gateway reads when the file has changed, which SQLite reports in microseconds; `postgres` has the other link.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.domain.gateways import Announcement, ChangeKind, read_announcement
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.gateways import StoredAnnouncements

_PAUSE = 0.5
"""Seconds between two checks for announcements, in addition to checks on demand."""

_MOST = 1_000
"""Rows read at once; a gateway with this many unread rows may have missed some."""


class FileLink:
    """The link on a SQLite file: reads new announcements on demand and every half second."""

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
        """Read new announcements. False if the file is locked or gone, because some may then be unread."""
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
        # timeout=0, because the event loop must not wait for a lock.
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


logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Maximum seconds that `announce` waits until the announcement is sent."""

Told = Callable[[Sequence[str]], None]
"""Called with the names that a change concerns; an empty sequence means everything."""


class Link(Protocol):
    """A connection to the other gateways."""

    def is_current(self) -> bool:
        """Whether every announcement made until now was received."""
        ...

    async def send(self, bodies: Sequence[str]) -> None:
        """Send announcements; raises a CatalogError if other gateways will not receive them."""
        ...

    async def run(self) -> None:
        """Receive announcements until cancelled."""
        ...


class OtherGateways:
    """Sends and receives the announcements of one gateway. Without a database, there are no other gateways; before
    `start`, nothing is sent or received.
    """

    def __init__(self, place: Path | str | None, stored: Callable[[], Awaitable[StoredAnnouncements | None]]) -> None:
        self._place = place
        self._stored = stored
        self._by = secrets.token_hex(8)
        self._told: defaultdict[ChangeKind, list[Told]] = defaultdict(list)
        self._link: Link | None = None
        self._unsaid: dict[ChangeKind, set[str]] = {}
        self._missed: set[ChangeKind] = set()
        self._sending: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks(logger, "Other gateways are not heard any more")

    def listen(self, news: ChangeKind, told: Told) -> None:
        """Register a function that is called with other gateways' announcements of a kind."""
        self._told[news].append(told)

    def start(self) -> None:
        if self._place is not None:
            self._tasks.spawn(self._follow(self._place), name="announcements")

    async def stop(self) -> None:
        await self._tasks.close()

    def is_current(self) -> bool:
        """Whether all changes by other gateways are known; always true if there can be no other gateways."""
        return self._place is None or (self._link is not None and self._link.is_current())

    async def announce(self, news: ChangeKind, *names: str) -> None:
        """Announce a change to the other gateways; returns once it is sent, or after `_PATIENCE`."""
        if self._link is None:
            self._missed |= {news} if self._place is not None else set()
            return
        self._unsaid.setdefault(news, set()).update(names or ("",))
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.spawn(self._send(self._link))
        await asyncio.wait({self._sending}, timeout=_PATIENCE)

    async def _send(self, link: Link) -> None:
        """Send all waiting announcements together, so many writes cost few messages."""
        while self._unsaid:
            unsaid, self._unsaid = self._unsaid, {}
            bodies = [
                Announcement(self._by, news, () if "" in names else tuple(names)).written()
                for news, names in unsaid.items()
            ]
            try:
                await link.send(bodies)
            except CatalogError as error:
                logger.debug("Other gateways were not notified: %s", error)
                self._missed |= unsaid.keys()

    async def _follow(self, place: Path | str) -> None:
        if isinstance(place, str):
            from mcp_optimizer.db.postgres import PostgresLink

            self._link = PostgresLink(place, self._heard, self._reconnected)
        else:
            self._link = FileLink(place, self._stored, self._heard, self._reconnected)
        await self._link.run()

    def _heard(self, body: object) -> None:
        said = read_announcement(body)
        if said is None or said.by == self._by:
            return
        for told in self._told[said.news]:
            told(said.names)

    def _reconnected(self) -> None:
        """Treat announcements lost in both directions as changes of everything: call all listeners, and announce the
        kinds that could not be sent.
        """
        for listeners in self._told.values():
            for told in listeners:
                told(())
        missed, self._missed = self._missed, set()
        for news in missed:
            self._tasks.spawn(self.announce(news))
