"""Keeps the lists of all gateways on one database alike: tools that one promotes or counts, the others list.

Built by the composition root. Without a database, or while it is unreachable, promotions stay local; they are written
once the database accepts them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mcp_optimizer.db.announcing import OtherGateways
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_MOST = 1_000
"""Maximum number of promoted tools listed."""


class SharedLists:
    """Promotions and counts of this gateway and of the others."""

    def __init__(
        self, storage: Storage, announcements: OtherGateways, refresher: ListRefresher, configuration: str
    ) -> None:
        self._storage = storage
        self._announcements = announcements
        self._refresher = refresher
        self._configuration = configuration
        self._unsaved: dict[str, None] = {}
        self._tasks = BackgroundTasks(logger, "Lists of tools may differ between gateways")
        refresher.listen(self._promoted)
        announcements.listen(ChangeKind.PROMOTED, self._told_of_promotions)
        announcements.listen(ChangeKind.COUNTED, self._told_of_counts)

    def start(self) -> None:
        self._tasks.spawn(self._begin())

    async def stop(self) -> None:
        await self._tasks.close()

    async def _begin(self) -> None:
        await self._storage.opened()
        if self._storage.has_counted:
            await self._announcements.announce(ChangeKind.COUNTED)
        await self._share()

    def _promoted(self, tool: str) -> None:
        self._unsaved[tool] = None
        self._tasks.spawn(self._share(is_news=True))

    def _told_of_promotions(self, _names: Sequence[str]) -> None:
        self._tasks.spawn(self._share())

    def _told_of_counts(self, _names: Sequence[str]) -> None:
        self._tasks.spawn(self._recount())

    async def _recount(self) -> None:
        if await self._storage.read_uses():
            self._refresher.recount()

    async def _share(self, *, is_news: bool = False) -> None:
        """Write unsaved promotions, and list those of all gateways in one order."""
        stored = await self._storage.promoted()
        if stored is None:
            return
        try:
            if unsaved := list(self._unsaved):
                await stored.add(self._configuration, unsaved)
                for tool in unsaved:
                    self._unsaved.pop(tool, None)
                is_news = True
            names = await stored.read(self._configuration, _MOST)
        except CatalogError as error:
            logger.debug("Promotions are not shared: %s", error)
            return
        self._refresher.use_promoted([*names, *(tool for tool in self._unsaved if tool not in names)])
        if is_news:
            await self._announcements.announce(ChangeKind.PROMOTED)
