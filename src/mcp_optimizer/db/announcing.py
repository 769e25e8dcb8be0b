"""Tells other gateways on the same database what changed, and hears what they say.

Called by whatever keeps something that another gateway can make out of date. Nobody waits longer than a second; what
could not be said is said about everything once the database answers. A gateway that cannot hear the others knows it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.domain.announcements import Announcement, News, read_announcement
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.announced import StoredAnnouncements

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that whoever announces something waits until it is said."""

Told = Callable[[Sequence[str]], None]
"""Told the names that some news is about; none: everything."""


class Link(Protocol):
    """The way to other gateways."""

    def is_current(self) -> bool:
        """Whether everything that others said until now was heard."""
        ...

    async def send(self, bodies: Sequence[str]) -> None:
        """Raises a CatalogError if others will not hear it."""
        ...

    async def run(self) -> None:
        """Hear the others until cancelled."""
        ...


class OtherGateways:
    """What this gateway says and hears. Without a database, or started by nobody, it is alone."""

    def __init__(self, place: Path | str | None, stored: Callable[[], Awaitable[StoredAnnouncements | None]]) -> None:
        self._place = place
        self._stored = stored
        self._by = secrets.token_hex(8)
        self._told: defaultdict[News, list[Told]] = defaultdict(list)
        self._link: Link | None = None
        self._unsaid: dict[News, set[str]] = {}
        self._missed: set[News] = set()
        self._sending: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks(logger, "Other gateways are not heard any more")

    def listen(self, news: News, told: Told) -> None:
        """Call it with what other gateways announce."""
        self._told[news].append(told)

    def start(self) -> None:
        if self._place is not None:
            self._tasks.spawn(self._follow(self._place), name="announcements")

    async def stop(self) -> None:
        await self._tasks.close()

    def is_current(self) -> bool:
        """Whether what others did until now is known; always, if there can be no others."""
        return self._place is None or (self._link is not None and self._link.is_current())

    async def announce(self, news: News, *names: str) -> None:
        """Say it to the others; returns when it is said, or after a moment."""
        if self._link is None:
            self._missed |= {news} if self._place is not None else set()
            return
        self._unsaid.setdefault(news, set()).update(names or ("",))
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.spawn(self._send(self._link))
        await asyncio.wait({self._sending}, timeout=_PATIENCE)

    async def _send(self, link: Link) -> None:
        """All that was announced meanwhile goes together, so that many writes cost few messages."""
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
            from mcp_optimizer.db.postgres_link import PostgresLink

            self._link = PostgresLink(place, self._heard, self._reconnected)
        else:
            from mcp_optimizer.db.file_link import FileLink

            self._link = FileLink(place, self._stored, self._heard, self._reconnected)
        await self._link.run()

    def _heard(self, body: object) -> None:
        said = read_announcement(body)
        if said is None or said.by == self._by:
            return
        for told in self._told[said.news]:
            told(said.names)

    def _reconnected(self) -> None:
        """What others said meanwhile is lost, and what was to be said to them: either is about everything."""
        for listeners in self._told.values():
            for told in listeners:
                told(())
        missed, self._missed = self._missed, set()
        for news in missed:
            self._tasks.spawn(self.announce(news))
