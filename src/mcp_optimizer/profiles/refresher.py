"""Prepares the lists of registered tools before clients ask, and announces changes.

A thread builds the lists: ahead of time if a profile is known to be wanted, and from forms stored by an earlier start
if there are any. Called by serving; knows no SDK type and no transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp_optimizer.catalog import CatalogTool, LiveCatalog
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.compression.short_descriptions import Level
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.profiles.lists import Presentation, Registered, ToolLists
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.profiles.written_descriptions import WrittenDescriptions
from mcp_optimizer.runtime.tasks import BackgroundTasks, ForegroundGate

if TYPE_CHECKING:
    # At run time the database libraries load in a thread, in parallel with everything else.
    from mcp_optimizer.db.catalog import StoredForms

logger = logging.getLogger(__name__)

_PATIENCE = 5.0
"""Seconds that a list waits, once, for servers that are still starting, if no tool is known even from an earlier start:
many clients never ask again.
"""

_BRIEFLY = 0.2
"""Seconds that a list waits, once, if some tools are known: many clients do nothing else until they have it."""

_DATABASE = 1.0
"""Seconds that a list waits for stored forms; without them the forms are built again."""

_QUIET = 0.3
"""Seconds without changes before lists are rebuilt: servers that start together cause one rebuild, not a dozen."""

OpenedForms = Callable[[], Awaitable["StoredForms | None"]]
"""Waits until the database is open; returns None if there is none."""

Wanted = tuple[ProfileName, Presentation]


class ListRefresher:
    """Lists of registered tools, built ahead of time and kept up to date."""

    def __init__(
        self,
        catalog: LiveCatalog,
        lists: ToolLists,
        forms: ToolForms,
        opened: OpenedForms,
        written: WrittenDescriptions,
        pace: ForegroundGate | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change`: called when a list that a client has is out of date."""
        self._on_change = on_change
        self._promoted: list[Callable[[str], None]] = []
        self._pace = pace or ForegroundGate()
        self._catalog = catalog
        self._lists = lists
        self._forms = forms
        self._opened = opened
        self._written = written
        self._wanted: dict[Wanted, Registered | None] = {}
        self._read_for: dict[Dialect, object] = {}
        self._storing = BackgroundTasks(logger, "Compressed definitions could not be stored")
        self._making = BackgroundTasks(logger, "Lists of tools could not be made ahead")
        self._settling: asyncio.Task[None] | None = None

    def start(self, profiles: set[ProfileName]) -> None:
        """Start building the lists of these profiles; the lists of other profiles are built on first request."""
        for profile in profiles:
            self._wanted[(profile, Presentation(self._forms.dialect))] = None
        self._settling = self._making.spawn(self._settle())
        self._making.spawn(self._watch())

    def use(
        self, pinned: Sequence[str], budgets: Mapping[ProfileName, int | None], concise: Collection[ProfileName]
    ) -> None:
        """Rebuild the lists with other pinned tools, budgets or concise profiles from now on."""
        self._lists.use(pinned, budgets, concise)
        self._making.spawn(self._renew())

    async def stop(self) -> None:
        await self._making.close()
        await self._storing.settled()
        self._written.close()

    def listing(self, tool: CatalogTool, presentation: Presentation) -> dict[str, Any]:
        """A registered tool, for a caller whose own server lists it otherwise than those of other callers."""
        entry = dict(self._forms.listing(tool, presentation.dialect))
        entry.pop("outputSchema", None)
        return entry

    async def listed(self, profile: ProfileName, presentation: Presentation) -> Registered:
        """The tools of a profile; waits briefly for servers that are still starting."""
        if self._settling is not None and not self._settling.done():
            await self._wait_for_tools(self._settling)
        # The background builder waits for a slow database; a client does not.
        recalling = self._storing.spawn(self._recall(presentation.dialect))
        await asyncio.wait([recalling], timeout=_DATABASE)
        made = await self._made((profile, presentation), recalling.result() if recalling.done() else None)
        self._wanted[(profile, presentation)] = made
        return made

    async def _wait_for_tools(self, settling: asyncio.Task[None]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not settling.done() and not self._catalog.snapshot.has_tools:
                    await self._catalog.changed()
        await asyncio.wait([settling], timeout=_BRIEFLY)

    async def promote(self, tool: str, profile: ProfileName, presentation: Presentation) -> bool:
        """Register a tool after its first use; returns whether the list changed."""
        if not await asyncio.to_thread(self._lists.promote, tool, profile, presentation):
            return False
        for told in self._promoted:
            told(tool)
        return True

    def listen(self, promoted: Callable[[str], None]) -> None:
        """Call `promoted` with each tool that is promoted here."""
        self._promoted.append(promoted)

    def use_promoted(self, tools: Sequence[str]) -> None:
        """Register these tools, which were used first here or at another gateway, in this order."""
        if self._lists.use_promoted(tools):
            self._making.spawn(self._renew())

    def recount(self) -> None:
        """Rebuild the lists, because the recorded use of tools has changed."""
        self._lists.renew()
        self._making.spawn(self._renew())

    async def _settle(self) -> None:
        """Waits until no server is in its first start and the tools of running servers are ingested."""
        while any(not state.status.has_failed for state in self._catalog.snapshot.missing()):
            await self._catalog.changed()

    async def _watch(self) -> None:
        """Rebuild the wanted lists after every change of the catalog, once it settles."""
        while True:
            made_from = self._catalog.snapshot.tools
            if self._wanted:
                await self._renew()
                await self._improve()
            if self._catalog.snapshot.tools is made_from:
                await self._catalog.changed()
            await self._rested()

    async def _rested(self) -> None:
        """Waits until the catalog settles; meanwhile compresses tools that will certainly be listed."""
        while True:
            for profile, presentation in list(self._wanted):
                await self._recall(presentation.dialect)
                with self._pace.working():
                    await asyncio.to_thread(self._lists.prepare, profile, presentation)
            try:
                async with asyncio.timeout(_QUIET):
                    await self._catalog.changed()
            except TimeoutError:
                return

    async def _renew(self) -> None:
        has_changed = False
        for wanted, before in list(self._wanted.items()):
            made = await self._make(wanted)
            has_changed |= before is not None and made.definitions != before.definitions
            self._wanted[wanted] = made
        if has_changed:
            self._on_change()

    async def _improve(self) -> None:
        """Request written descriptions for the listed tools, if a writer is configured."""
        # Different descriptions leave different room, so the list may gain tools that have none yet.
        while await self._written.ask(self._listed_in_words()):
            self._lists.renew()
            await self._renew()

    def _listed_in_words(self) -> list[CatalogTool]:
        by_name = self._catalog.snapshot.by_name
        profiles = [made.profile for made in self._wanted.values() if made is not None]
        names = {name for profile in profiles if profile.level is Level.WORDS for name in profile.tools}
        return [by_name[name] for name in sorted(names) if name in by_name]

    async def _make(self, wanted: Wanted) -> Registered:
        return await self._made(wanted, await self._recall(wanted[1].dialect))

    async def _made(self, wanted: Wanted, stored: StoredForms | None) -> Registered:
        profile, presentation = wanted
        with self._pace.working():
            made = await asyncio.to_thread(self._lists.listed, profile, presentation)
        if stored is not None and self._forms.has_new(presentation.dialect):
            self._storing.spawn(self._store(stored, presentation.dialect))
        return made

    @asynccontextmanager
    async def remembering(self) -> AsyncIterator[None]:
        """Compressed definitions that were stored need not be made meanwhile; those that are made then are stored."""
        stored = await self._recall(self._forms.dialect)
        yield
        if stored is not None and self._forms.has_new(self._forms.dialect):
            await self._store(stored, self._forms.dialect)

    async def _recall(self, dialect: Dialect) -> StoredForms | None:
        """Load what earlier starts stored about the current tools; None if nothing is stored."""
        snapshot, stored = self._catalog.snapshot, await self._opened()
        if stored is not None and self._read_for.get(dialect) is not snapshot.tools:
            self._read_for[dialect] = snapshot.tools
            await self._read(stored, dialect)
            await self._written.recall(snapshot.running)
        return stored

    async def _read(self, stored: StoredForms, dialect: Dialect) -> None:
        try:
            # In a thread, because even checking which forms are known is slow for a hundred thousand tools.
            unknown = await asyncio.to_thread(self._unknown, dialect)
            self._forms.learn(await stored.read(unknown, self._forms.kind(dialect)), dialect)
        except CatalogError as error:
            logger.warning("Cannot read the catalog: %s. Compressing definitions again.", error)

    def _unknown(self, dialect: Dialect) -> list[str]:
        return self._forms.unknown(self._catalog.snapshot.running, dialect)

    async def _store(self, stored: StoredForms, dialect: Dialect) -> None:
        await self._pace.wait()
        new = await asyncio.to_thread(self._forms.take_new, dialect)
        try:
            await stored.write(new, self._forms.kind(dialect))
        except CatalogError as error:
            logger.warning("Cannot store compressed definitions in the catalog: %s. Everything else works.", error)
