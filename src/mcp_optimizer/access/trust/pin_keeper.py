"""Compares each listing of a server's tools and instructions with what was approved, and stores approvals.

The first listing of a server counts as approved. Later, changed and added tools are held back or announced, depending
on the server's mode; unchanged tools are used exactly as they were approved. Called by the catalog at every listing,
and by the command line and the dashboard to approve. Knows no client, and never logs a server's texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from mcp_optimizer.access.trust.pins import (
    PinsInMemory,
    PinStore,
    Verdict,
    as_approved,
    baseline,
    compare,
    identity_of,
    instructions_of,
    pins_by_name,
    versions_of,
)
from mcp_optimizer.domain.pins import (
    INSTRUCTIONS,
    Admitted,
    HeldTool,
    Mark,
    Pins,
    ServerPin,
    ToolChange,
    TrustMode,
    entry_of_pins,
    read_of,
)
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.errors import CatalogError, listed, quoted
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_PAUSE = 2.0
"""Seconds between two checks for approvals by other processes, while something waits for approval."""

_MOST_NAMED, _MOST_LOGGED = 5, 20
"""Maximum tools named in a log line, and log lines about one server, which may change its tools a million times."""

OpenedPins = Callable[[], Awaitable[PinStore | None]]
"""Waits until the database is open or failed to open; None if there is no database."""


class PinKeeper:
    """The approvals of all servers. `modes` are by server; a server without one is not checked. `is_stored`: approvals
    are in a database, so they are unknown while it cannot be opened.
    """

    def __init__(
        self, opened: OpenedPins, modes: Mapping[str, TrustMode], pause: float = _PAUSE, *, is_stored: bool = False
    ) -> None:
        self._opened = opened
        self._is_stored = is_stored
        self._modes = modes
        self._pause = pause
        self._memory = PinsInMemory()
        self._tasks = BackgroundTasks(logger, "What a server listed first could not be stored")
        self._beginning: dict[str, asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known: dict[str, Pins] = {}
        self._marks: dict[str, Mark] = {}
        self._decided: set[str] = set()
        self._stirred = asyncio.Event()
        self._logged: dict[str, frozenset[tuple[str, str]]] = {}
        self._times_logged: Counter[str] = Counter()
        self._unstored: set[str] = set()

    async def admit(self, state: UpstreamState) -> Admitted:
        """The part of a server's listing that may be used. Waits until the database is open, or failed to open."""
        mode, said = self._mode(state.name), read_of(state.instructions)
        definitions: Sequence[Definition] = state.listing.tools
        if mode is TrustMode.OFF:
            return Admitted(definitions, instructions=said)
        server = identity_of(state.spec)
        # One listing at a time, so that the changes stored for approval are those of the latest.
        async with self._turns[state.name]:
            store, pins = await self._approved(state.name)
            if store is None and mode is TrustMode.BLOCK:
                return self._held_until_known(state)
            store = store or self._memory
            if pins.approved is None:
                self._marks.pop(state.name, None)
                self._beginning[state.name] = self._tasks.spawn(self._begin(store, state, server))
                return Admitted(definitions, instructions=said)
            verdict = await asyncio.to_thread(compare, pins, server, _pinned(state))
            changes = await self._write_down(store, state, server, verdict, pins)
            definitions = await self._as_approved(store, state, verdict)
        unapproved = _unapproved(state, verdict, pins)
        self._remember(state.name, pins, unapproved)
        self._log(state.name, mode, verdict, changes)
        other = unapproved.pop(INSTRUCTIONS, None)
        if mode is TrustMode.WARN:
            return Admitted(definitions, announced=unapproved, instructions=said, other_instructions=other)
        return Admitted(
            [tool for tool in definitions if tool.name not in unapproved],
            unapproved,
            [tool for tool in definitions if tool.name in unapproved],
            instructions=said if other is None else "",
            other_instructions=other,
        )

    async def recalled(self, state: UpstreamState) -> Admitted:
        """What may be found of a listing from before, until the server lists its tools again: what is approved now.
        Nothing is written: what a server listed once must not become its baseline.
        """
        tools, said = state.listing.tools, read_of(state.instructions)
        if self._mode(state.name) is not TrustMode.BLOCK:
            return Admitted(tools, instructions=said)
        store, pins = await self._approved(state.name)
        if store is None or pins.approved is None:
            return Admitted(())
        verdict = await asyncio.to_thread(compare, pins, identity_of(state.spec), _pinned(state))
        if verdict.is_other_server:
            return Admitted(())
        same = [tool for tool in tools if tool.name not in verdict.changes]
        return Admitted(same, instructions="" if INSTRUCTIONS in verdict.changes else said)

    async def objection(self, state: UpstreamState, definition: Definition) -> HeldTool | None:
        """Why a skill that is not in its server's list in this form may not be used; None if it may. A new or changed
        one waits for approval, as if it had been listed.
        """
        if self._mode(state.name) is not TrustMode.BLOCK:
            return None
        name = definition.name
        async with self._turns[state.name]:
            store, pins = await self._approved(state.name)
            if store is None or pins.approved is None:
                return HeldTool(state.name, name, ToolChange.UNKNOWN, 0)
            server = identity_of(state.spec)
            verdict = await asyncio.to_thread(compare, pins, server, [definition])
            if (change := verdict.changes.get(name)) is None:
                return HeldTool(state.name, name, ToolChange.SERVER, 0) if verdict.is_other_server else None
            waiting = {**pins.waiting_tools, **pins_by_name([definition])}
            if versions_of(waiting) != versions_of(pins.waiting_tools):
                try:
                    await store.wait(state.name, pins.waiting, waiting)
                except CatalogError as error:
                    self._complain(state.name, error)
        known = pins.tools.get(name, pins.approved)
        return HeldTool(state.name, name, change, known.at_ms)

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        """Approve waiting tools by name, and a changed command or URL of the server. Each is approved only if it is
        still the version that was shown. Returns the approved names.
        """
        approved = await (await self._store()).approve(server, tools, by, identity)
        self._decide(server)
        return approved

    async def reset(self, server: str) -> bool:
        """Forget a server: its next listing is the new baseline. Returns whether there was anything to forget."""
        existed = await (await self._store()).reset(server)
        await self._memory.reset(server)
        self._known.pop(server, None)
        self._decide(server)
        return existed

    async def servers(self) -> list[str]:
        """Every server with stored pins."""
        return await (await self._store()).servers()

    async def pins(self, server: str) -> Pins:
        """All pins of a server, with definitions."""
        return await (await self._store()).whole(server)

    @property
    def modes(self) -> Mapping[str, TrustMode]:
        """The treatment of changed tools, by server."""
        return self._modes

    def _mode(self, name: str) -> TrustMode:
        """The treatment of what is pinned under a name: that of its server."""
        return self._modes.get(name) or self._modes.get(entry_of_pins(name), TrustMode.OFF)

    def use_modes(self, modes: Mapping[str, TrustMode]) -> None:
        """The servers or their modes changed; use these from now on."""
        before, self._modes = self._modes, modes
        for server in [name for name in self._marks if name not in modes and entry_of_pins(name) not in modes]:
            del self._marks[server]
        for server, mode in modes.items():
            if before.get(server, mode) is not mode:
                self._decide(server)

    async def decided(self) -> Collection[str]:
        """Wait for decisions, in this or another process, about servers with unapproved tools; returns their names."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause if self._marks else None):
                    await self._stirred.wait()
            self._stirred.clear()
            found = self._decided | await self._decided_elsewhere()
            self._decided = set()
            if found:
                return found

    def look_again(self) -> None:
        """The database was opened late: compare every server with what it contains."""
        for server in self._turns:
            self._decide(server)

    def look(self, _names: Sequence[str] = ()) -> None:
        """Another process decided: check now, not after the pause."""
        self._stirred.set()

    async def settled(self) -> None:
        """Wait until all first listings are stored."""
        await self._tasks.settled()

    async def _begin(self, store: PinStore, state: UpstreamState, server: ServerPin) -> None:
        """Store a server's first listing as approved. Runs in the background, because nothing has to be compared."""
        first = await asyncio.to_thread(baseline, _pinned(state), state.listing.turned_off)
        try:
            pins = await store.begin(state.name, server, first)
        except CatalogError as error:
            self._complain_unstored(state.name, error)
            pins = await self._memory.begin(state.name, server, first)
        self._known[state.name] = pins
        is_ours = pins.approved is not None and pins.approved.identity == server.identity
        if not is_ours or versions_of(pins.tools) != versions_of(first):
            # Another gateway stored its listing first.
            self._decide(state.name)

    async def _store(self) -> PinStore:
        return await self._opened() or self._memory

    async def _approved(self, server: str) -> tuple[PinStore | None, Pins]:
        """A server's pins and their store; the store is None if approvals are in a database that cannot be read."""
        store = await self._opened()
        if (beginning := self._beginning.pop(server, None)) is not None:
            await asyncio.wait({beginning})
        kept = await self._memory.read(server)
        if store is None:
            return None if self._is_stored else self._memory, kept
        try:
            pins = await store.read(server)
        except CatalogError as error:
            self._complain(server, error)
            known = self._known.get(server, kept)
            return None if known.approved is None else self._memory, known
        if pins.approved is not None or kept.approved is None:
            return store, pins
        try:
            # The first listing came while the database was not open, or could not be written.
            return store, await store.begin(server, kept.approved, kept.tools)
        except CatalogError as error:
            self._complain_unstored(server, error)
            return self._memory, self._known.get(server, kept)

    def _held_until_known(self, state: UpstreamState) -> Admitted:
        """Hold back everything until the server's approvals can be read."""
        self._tasks.spawn(self._look_later(state.name))
        tools = state.listing.tools
        held = {tool.name: HeldTool(state.name, tool.name, ToolChange.UNKNOWN, 0) for tool in tools}
        other = HeldTool(state.name, INSTRUCTIONS, ToolChange.UNKNOWN, 0) if state.instructions else None
        return Admitted((), held, tools, other_instructions=other)

    async def _look_later(self, server: str) -> None:
        await asyncio.sleep(self._pause)
        self._decide(server)

    def _complain_unstored(self, server: str, error: CatalogError) -> None:
        """Log once per server, because every listing tries again."""
        if server in self._unstored:
            return
        self._unstored.add(server)
        logger.warning(
            "Server %s: its first list of tools cannot be stored in the database: %s. Only this gateway knows it: "
            "after a restart, the server's next list counts as approved.",
            quoted(server),
            error,
        )

    def _complain(self, server: str, error: CatalogError) -> None:
        logger.warning(
            "Server %s: its approvals cannot be read or written: %s. Its tools are compared with those that "
            "this gateway saw first.",
            quoted(server),
            error,
        )

    async def _write_down(
        self, store: PinStore, state: UpstreamState, server: ServerPin, verdict: Verdict, pins: Pins
    ) -> dict[str, str]:
        """Store the changes that wait for approval, unless they are stored already; returns their versions."""
        wanted = {*verdict.changes, *verdict.first_seen}
        made = await asyncio.to_thread(pins_by_name, [tool for tool in _pinned(state) if tool.name in wanted])
        waiting = {name: made[name] for name in verdict.changes}
        moved = server if verdict.is_other_server else None
        is_same = versions_of(waiting) == versions_of(pins.waiting_tools)
        is_same_server = (moved and moved.identity) == (pins.waiting and pins.waiting.identity)
        try:
            if verdict.first_seen:
                await store.adopt(state.name, {name: made[name] for name in verdict.first_seen})
            if not (is_same and is_same_server):
                await store.wait(state.name, moved, waiting)
        except CatalogError as error:
            logger.warning("Server %s: its changes cannot be stored for approval: %s.", quoted(state.name), error)
        return versions_of(waiting)

    async def _as_approved(self, store: PinStore, state: UpstreamState, verdict: Verdict) -> Sequence[Definition]:
        """The listed tools; tools that differ only in order are replaced by their approved definitions."""
        if not verdict.reordered:
            return state.listing.tools
        try:
            kept = (await store.whole(state.name)).tools
        except CatalogError as error:
            self._complain(state.name, error)
            return state.listing.tools
        names = [name for name in verdict.reordered if name in kept]
        approved = await asyncio.to_thread(lambda: {name: as_approved(name, kept[name]) for name in names})
        return [approved.get(tool.name) or tool for tool in state.listing.tools]

    def _remember(self, server: str, pins: Pins, unapproved: Mapping[str, HeldTool]) -> None:
        self._known[server] = pins
        if unapproved:
            self._marks[server] = pins.mark
            self._stirred.set()
        else:
            self._marks.pop(server, None)

    def _decide(self, server: str) -> None:
        self._decided.add(server)
        self._stirred.set()

    async def _decided_elsewhere(self) -> set[str]:
        if not self._marks:
            return set()
        try:
            marks = await (await self._store()).marks(list(self._marks))
        except CatalogError as error:
            logger.debug("Cannot look for approvals: %s", error)
            return set()
        return {server for server, mark in marks.items() if self._marks.get(server, mark) != mark}

    def _log(self, server: str, mode: TrustMode, verdict: Verdict, changes: Mapping[str, str]) -> None:
        """Log each change once: the tools, the server, and how to see the change. `changes`: versions by name."""
        now = {*changes.items()} | ({("", "")} if verdict.is_other_server else set())
        new = now - self._logged.get(server, frozenset())
        self._logged[server], times = frozenset(now), self._times_logged[server] + 1
        if not new or times > _MOST_LOGGED + 1:
            return
        self._times_logged[server] = times
        names = sorted(name for name, _ in new if name)
        said = ["its command or URL is not the approved one"] if ("", "") in new else []
        is_said_otherwise = any(version for name, version in new if name == INSTRUCTIONS)
        said += ["its instructions are not the approved ones"] if is_said_otherwise else []
        shown = listed([*map(quoted, names)], _MOST_NAMED)
        said += [f"changed or new since its tools were approved: {shown}"] if names else []
        effect = (
            f"They {'are used' if mode is TrustMode.WARN else 'wait for approval'}; see `mcp-optimizer trust list`."
        )
        effect += " Further changes are not logged." if times > _MOST_LOGGED else ""
        logger.warning("Server %s: %s. %s", quoted(server), "; ".join(said), effect)


def _unapproved(state: UpstreamState, verdict: Verdict, pins: Pins) -> dict[str, HeldTool]:
    begun = pins.approved.at_ms if pins.approved is not None else 0
    found = {}
    for tool in _pinned(state):
        if tool.name == INSTRUCTIONS and not state.instructions:
            continue
        change = verdict.changes.get(tool.name, ToolChange.SERVER if verdict.is_other_server else None)
        if change is not None:
            known = pins.tools.get(tool.name)
            at_ms = known.at_ms if known is not None and change is ToolChange.CHANGED else begun
            found[tool.name] = HeldTool(state.name, tool.name, change, at_ms)
    return found


def _pinned(state: UpstreamState) -> list[Definition]:
    """Everything in a listing that a model may read: the tools and the instructions."""
    return [*state.listing.tools, instructions_of(state.instructions)]
