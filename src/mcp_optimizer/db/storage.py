"""Opens the gateway's database, if it has one, in the background, and retries while it cannot be opened.

Callers wait only for the first attempt: without the database, everything works except what needs its content. Called by
the composition root; knows nothing of servers or clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer.db.breaker import Breaker
from mcp_optimizer.domain.events import ToolKey
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    # At run time the database's libraries load in a thread, in parallel with the rest of the start.
    from mcp_optimizer.db.audit import StoredAudit
    from mcp_optimizer.db.catalog import Catalog, StoredForms, StoredShapes
    from mcp_optimizer.db.credentials import StoredKeys, StoredSignIns
    from mcp_optimizer.db.database import Database
    from mcp_optimizer.db.gateways import GatewayRows, StoredAnnouncements
    from mcp_optimizer.db.history import History, PromotedTools, StoredUse
    from mcp_optimizer.db.kept_results import KeptResults, TaskRows
    from mcp_optimizer.db.pins import StoredPins
    from mcp_optimizer.db.scripts import ScriptRows
    from mcp_optimizer.db.secrets import StoredSecrets

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 60.0

OpenedLate = Callable[[], Awaitable[None]]


class Storage:
    """The database at `place` (a file, or a PostgreSQL URL; None stores nothing), and access to its content."""

    def __init__(
        self, place: Path | str | None, first_pause: float = _FIRST_PAUSE, configuration: str | None = None
    ) -> None:
        """`configuration`: the one whose history is read; None reads the history of all."""
        self._place = place
        self._configuration = configuration
        self._first_pause = first_pause
        self._database: Database | None = None
        self._memory: Database | None = None
        self._opening: asyncio.Task[None] | None = None
        self._trying_again: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks(logger, "The catalog could not be opened")
        self._making_memory = asyncio.Lock()
        self.breaker = Breaker(self._probe, opened=self._ready)
        """For all database work that a request waits for."""
        self.signatures = Signatures(None if place is None else self._key)
        """Signs values that clients carry from one gateway on this database to another."""
        self.uses: Mapping[ToolKey, int] = {}
        """How often tools were called, the same for all gateways. Rarely read again, because lists depend on it."""
        self.has_counted = False
        """Whether this gateway counted the calls for all gateways."""

    def open(self, opened_late: OpenedLate | None = None) -> None:
        """Begin to open the database. `opened_late` is called if a later attempt succeeds, to store what waits."""
        if self._place is not None:
            self._opening = self._tasks.spawn(self._open(self._place, opened_late))

    async def opened(self) -> None:
        """Wait until the database is open or the first attempt has failed."""
        if self._opening is not None:
            # Not the task itself, because cancelling the wait must not cancel the opening.
            await asyncio.wait([self._opening])

    async def close(self) -> None:
        await self.opened()
        if self._trying_again is not None:
            if self._database is None:
                self._trying_again.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._trying_again
        self.signatures.stop()
        await self.breaker.close()
        for database in (self._database, self._memory):
            if database is not None:
                await database.close()

    async def catalog(self) -> Catalog | None:
        """Servers, their tools and lists, and the cost and vectors of definitions."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.catalog import Catalog

        return Catalog(self._database)

    async def forms(self) -> StoredForms | None:
        """The stored forms of definitions."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.catalog import StoredForms

        return StoredForms(self._database)

    async def use(self) -> StoredUse | None:
        """The counts of tools called after searches."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.history import StoredUse

        return StoredUse(self._database)

    async def shapes(self) -> StoredShapes | None:
        """The shapes of tools' results."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.catalog import StoredShapes

        return StoredShapes(self._database)

    async def secrets(self) -> StoredSecrets | None:
        """Encrypted secrets."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.secrets import StoredSecrets

        return StoredSecrets(self._database)

    async def pins(self) -> StoredPins | None:
        """The pins: servers and tools as approved, and changes that wait for approval."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.pins import StoredPins

        return StoredPins(self._database)

    async def scripts(self) -> ScriptRows | None:
        """The scripts stored under a name."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.scripts import ScriptRows

        return ScriptRows(self._database)

    async def api_keys(self) -> StoredKeys | None:
        """The API keys of callers."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.credentials import StoredKeys

        return StoredKeys(self._database)

    async def sign_ins(self) -> StoredSignIns | None:
        """The sign-ins on the dashboard; in memory if the gateway has no database, None while it is not open."""
        database = await self._here_or_in_memory()
        from mcp_optimizer.db.credentials import StoredSignIns

        return None if database is None else StoredSignIns(database)

    async def gateways(self) -> GatewayRows | None:
        """The gateways on this database, and the sessions that clients ended."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.gateways import GatewayRows

        return GatewayRows(self._database)

    async def _key(self) -> bytes | None:
        stored = await self.use()
        try:
            return await stored.key() if stored is not None else None
        except CatalogError:
            return None

    async def history(self, *, everything: bool = False) -> History | None:
        """The stored events of this configuration; with `everything`, of all configurations."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.history import History

        return History(self._database, None if everything else self._configuration)

    async def audit(self) -> StoredAudit | None:
        """The audit entries."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.audit import StoredAudit

        return StoredAudit(self._database)

    async def announced(self) -> StoredAnnouncements | None:
        """The announcements between gateways on one SQLite file."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.gateways import StoredAnnouncements

        return StoredAnnouncements(self._database)

    async def promoted(self) -> PromotedTools | None:
        """The tools that are listed since their first use."""
        await self.opened()
        if self._database is None:
            return None
        from mcp_optimizer.db.history import PromotedTools

        return PromotedTools(self._database)

    async def kept_results(self) -> KeptResults | None:
        """The kept complete results; in memory if the gateway has no database, None while it is not open."""
        database = await self._here_or_in_memory()
        from mcp_optimizer.db.kept_results import KeptResults

        return None if database is None else KeptResults(database)

    async def tasks(self) -> TaskRows | None:
        """The tasks that clients ask for; in memory if the gateway has no database, None while it is not open."""
        database = await self._here_or_in_memory()
        from mcp_optimizer.db.kept_results import TaskRows

        return None if database is None else TaskRows(database)

    async def _ready(self) -> None:
        """Wait until requests can use the database; one in memory is made for the first of them."""
        await (self.opened() if self._place is not None else self._here_or_in_memory())

    async def _here_or_in_memory(self) -> Database | None:
        await self.opened()
        from mcp_optimizer.db.database import open_database

        if self._place is None:
            async with self._making_memory:
                self._memory = self._memory or await open_database(None)
        return self._memory or self._database

    async def _probe(self) -> None:
        """Raises a CatalogError unless the database answers."""
        if self._place is None:
            await self._here_or_in_memory()
            return
        if self._database is None:
            raise CatalogError("the database is not open")
        from mcp_optimizer.db.transactions import Transactions

        await Transactions(self._database).probe()

    async def _open(self, place: Path | str, opened_late: OpenedLate | None) -> None:
        # Loaded in a thread while servers start, so no tools/list request waits for it.
        await asyncio.to_thread(import_module, "mcp_optimizer.db.catalog")
        from mcp_optimizer.db.database import open_database

        try:
            self._database = await open_database(place)
        except CatalogError as error:
            logger.warning("%s Continuing without it and trying again; nothing is stored until then.", error)
            self._trying_again = self._tasks.spawn(self._open_later(place, opened_late))
            return
        await self._read_uses(self._database)

    async def _read_uses(self, database: Database) -> None:
        from mcp_optimizer.db.history import History, SharedUses

        counted = History(database, self._configuration).call_counts
        try:
            if self._configuration is None:
                self.uses = await counted()
            else:
                agreed = SharedUses(database).agreed(self._configuration, counted)
                self.uses, self.has_counted = await agreed
        except CatalogError as error:
            logger.warning("Profiles ignore earlier use of tools: %s.", error)

    async def read_uses(self) -> bool:
        """Use the counts that another gateway made; returns whether they differ from the previous ones."""
        if self._database is None or self._configuration is None:
            return False
        from mcp_optimizer.db.history import SharedUses

        before = self.uses
        try:
            self.uses = await SharedUses(self._database).read(self._configuration) or before
        except CatalogError as error:
            logger.debug("Cannot read how often tools were used: %s", error)
        return self.uses != before

    async def _open_later(self, place: Path | str, opened_late: OpenedLate | None) -> None:
        from mcp_optimizer.db.database import open_database

        pause = self._first_pause
        while self._database is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            with contextlib.suppress(CatalogError):
                self._database = await open_database(place)
        logger.warning("The catalog is open now.")
        await self._read_uses(self._database)
        if opened_late is not None:
            await opened_late()
