"""Decides which of a server's listed tools are what was approved, and keeps what was; its instructions likewise.

The first listing of a server counts as approved. Later, tools that changed, or were added, are held back or announced,
as the server's mode says; those that are the same are used exactly as they were approved. The catalog asks at every
listing; the command line and the dashboard approve. Knows no client, and never logs a server's texts.
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
    read_of,
)
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.errors import CatalogError, listed, quoted
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_PAUSE = 2.0
"""Seconds between two looks for approvals by other processes, while there is something to approve."""

_MOST_NAMED, _MOST_LOGGED = 5, 20
"""Tools named, and log lines about one server: it may change its tools a million times."""

OpenedPins = Callable[[], Awaitable[PinStore | None]]
"""Waits until the database is open, or could not be opened; None if there is none."""


class PinKeeper:
    """Knows what was approved. `modes` are by server; a server without one is not looked at. `is_stored`: that is in
    a database, so that nobody knows it while there is none to be opened.
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
        """What of a server's listing may be used. Waits until the database is open, or is known to be of no use."""
        mode, said = self._modes.get(state.name, TrustMode.OFF), read_of(state.instructions)
        definitions: Sequence[Definition] = state.listing.tools
        if mode is TrustMode.OFF:
            return Admitted(definitions, instructions=said)
        server = identity_of(state.spec)
        # One listing at a time, so that what waits for approval is of the latest.
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

    async def recalled(self, state: UpstreamState) -> Sequence[Definition]:
        """What may be found of a listing from before, until the server lists its tools again: what is approved now.
        Nothing is written: what a server listed once must not become its baseline.
        """
        tools = state.listing.tools
        if self._modes.get(state.name, TrustMode.OFF) is not TrustMode.BLOCK:
            return tools
        store, pins = await self._approved(state.name)
        if store is None or pins.approved is None:
            return ()
        verdict = await asyncio.to_thread(compare, pins, identity_of(state.spec), tools)
        return () if verdict.is_other_server else [tool for tool in tools if tool.name not in verdict.changes]

    async def approve(self, server: str, tools: Mapping[str, str], by: str, identity: str = "") -> list[str]:
        """Approve waiting tools by name, and another command or URL of the server, each only if it is still the version
        that was shown. Returns the approved names.
        """
        approved = await (await self._store()).approve(server, tools, by, identity)
        self._decide(server)
        return approved

    async def reset(self, server: str) -> bool:
        """Forget a server: what it lists now is the new baseline. Whether there was anything to forget."""
        existed = await (await self._store()).reset(server)
        await self._memory.reset(server)
        self._known.pop(server, None)
        self._decide(server)
        return existed

    async def servers(self) -> list[str]:
        """Every server of which something is kept."""
        return await (await self._store()).servers()

    async def pins(self, server: str) -> Pins:
        """Everything that is kept of a server, with definitions."""
        return await (await self._store()).whole(server)

    @property
    def modes(self) -> Mapping[str, TrustMode]:
        """What happens to changed tools, by server."""
        return self._modes

    def use_modes(self, modes: Mapping[str, TrustMode]) -> None:
        """The servers are others, or are treated differently from now on."""
        before, self._modes = self._modes, modes
        for server in [server for server in self._marks if server not in modes]:
            del self._marks[server]
        for server, mode in modes.items():
            if before.get(server, mode) is not mode:
                self._decide(server)

    async def decided(self) -> Collection[str]:
        """Wait until somebody, here or in another process, decides about servers with unapproved tools; their names."""
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
        """The database is open after all: what it says of any server counts from now on."""
        for server in self._turns:
            self._decide(server)

    def look(self, _names: Sequence[str] = ()) -> None:
        """Somebody decided elsewhere: look now, and not after the next pause."""
        self._stirred.set()

    async def settled(self) -> None:
        """Wait until all first listings are stored."""
        await self._tasks.settled()

    async def _begin(self, store: PinStore, state: UpstreamState, server: ServerPin) -> None:
        """Store a server's first listing as approved. Nobody waits for that: there is nothing to compare it with."""
        first = await asyncio.to_thread(baseline, _pinned(state), state.listing.turned_off)
        try:
            pins = await store.begin(state.name, server, first)
        except CatalogError as error:
            self._complain_unstored(state.name, error)
            pins = await self._memory.begin(state.name, server, first)
        self._known[state.name] = pins
        is_ours = pins.approved is not None and pins.approved.identity == server.identity
        if not is_ours or versions_of(pins.tools) != versions_of(first):
            # Another gateway was first.
            self._decide(state.name)

    async def _store(self) -> PinStore:
        return await self._opened() or self._memory

    async def _approved(self, server: str) -> tuple[PinStore | None, Pins]:
        """What was approved of a server, and where that is kept; nowhere if that is in a database that is not read."""
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
            # Seen while the database was not open, or could not be written.
            return store, await store.begin(server, kept.approved, kept.tools)
        except CatalogError as error:
            self._complain_unstored(server, error)
            return self._memory, self._known.get(server, kept)

    def _held_until_known(self, state: UpstreamState) -> Admitted:
        """Nothing of a server is used before it is known what was approved of it."""
        self._tasks.spawn(self._look_later(state.name))
        tools = state.listing.tools
        held = {tool.name: HeldTool(state.name, tool.name, ToolChange.UNKNOWN, 0) for tool in tools}
        other = HeldTool(state.name, INSTRUCTIONS, ToolChange.UNKNOWN, 0) if state.instructions else None
        return Admitted((), held, tools, other_instructions=other)

    async def _look_later(self, server: str) -> None:
        await asyncio.sleep(self._pause)
        self._decide(server)

    def _complain_unstored(self, server: str, error: CatalogError) -> None:
        """Once per server: every listing tries again."""
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
        """What waits for approval, for those who approve; its versions. Nothing is written if it waits already."""
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
        """The listed tools; those that are the same in another order in the order that was approved."""
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
        """Once per change: which tools of which server, and how to see what changed. `changes`: versions by name."""
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
    """Everything of a listing that a model may read."""
    return [*state.listing.tools, instructions_of(state.instructions)]
