"""Fetches servers' lists of prompts, resources and resource templates, within limits of time and size, joins them, and
remembers what was listed last.

A server that announces changes is asked once, any other server every time. Lists do not wait for a slow server: they
are sent without it, or with its last list, and a callback reports when its response arrives. For a server that just
came up, the list from an earlier start is used if it does not respond quickly. Called by the directory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.naming import ServerNames, ServerSchemes, public_names, public_uris
from mcp_optimizer.errors import CallTimeout, UpstreamError, UpstreamRefusal
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.upstream.listing import Cursor
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

_LONGEST = 60.0
"""Seconds after which a server whose list never ends is abandoned."""

_MOMENT = 0.25
"""Seconds that a list waits for a server whose entries are not in it, but may affect its names."""

_AT_ONCE = 50
"""Servers asked before other tasks get a turn."""

_TTL_MS = 60_000
"""How long a list may be cached if its servers announce changes."""

Call = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Asks one server: takes its name, the method and the params."""


@dataclass(frozen=True)
class ListingKind:
    """One kind of list: how it is requested, and which field identifies its entries."""

    method: str
    result_key: str
    capability: str
    identity: str

    @property
    def is_named(self) -> bool:
        """Whether entries have names, like tools, or URIs."""
        return self.identity == "name"


PROMPTS = ListingKind("prompts/list", "prompts", "prompts", "name")
RESOURCES = ListingKind("resources/list", "resources", "resources", "uri")
TEMPLATES = ListingKind("resources/templates/list", "resourceTemplates", "resources", "uriTemplate")
KINDS = (PROMPTS, RESOURCES, TEMPLATES)


@dataclass(frozen=True)
class Listed:
    """What one server lists, by its own names, and how long that may be cached."""

    entries: Mapping[str, dict[str, Any]]
    ttl_ms: int
    scope: str


OnListed = Callable[[str, ListingKind, Listed], None]
"""Called when a server responds with its list."""

Answer = Listed | UpstreamError | None
"""A server's list; the error, if it failed; or None if it is slow and has never responded before."""


@dataclass
class _Asking:
    """A request in progress."""

    task: asyncio.Task[Listed]
    began: float
    is_late: bool = False

    def go_late(self) -> None:
        """Record that a caller was answered without this response."""
        self.is_late = True


_Key = tuple[str, str]
"""A server and a method."""


class Listings:
    """The known lists of each server."""

    def __init__(
        self,
        call: Call,
        tells_changes: Callable[[str, ListingKind], bool],
        limits: Limits,
        on_late: Callable[[str], None],
        on_listed: OnListed = lambda _server, _kind, _listed: None,
    ) -> None:
        """`on_late` is called with the capability whose lists a late response changed, `on_listed` with every list."""
        self._call = call
        self._tells_changes = tells_changes
        self._limits = limits
        self._on_late = on_late
        self._on_listed = on_listed
        self._kept: dict[_Key, Listed] = {}
        self._said_last: dict[_Key, Listed] = {}
        self._expected: set[_Key] = set()
        """Lists whose last version is from before the server came up."""
        self._asking: dict[_Key, _Asking] = {}
        self._spoken_of: set[str] = set()

    def forget(self, server: str, capability: str | None = None) -> None:
        """Drop a server's lists, of one capability or all, because they changed."""
        if server not in self._spoken_of:
            return
        if capability is None:
            self._spoken_of.discard(server)
        for kind in KINDS:
            if capability in (None, kind.capability):
                # Earlier callers still get the response, but it is not cached, because the request predates the change.
                for memory in (self._kept, self._said_last, self._asking):
                    memory.pop((server, kind.method), None)
                self._expected.discard((server, kind.method))

    def expect(self, server: str, kind: ListingKind, listed: Listed) -> None:
        """Use a list from before the server came up, unless the server responds very soon."""
        self._spoken_of.add(server)
        self._said_last[server, kind.method] = listed
        self._expected.add((server, kind.method))

    async def of(
        self,
        servers: Iterable[str],
        kind: ListingKind,
        is_awaited: Callable[[str], bool] = lambda _server: True,
        most: float | None = None,
    ) -> dict[str, Answer]:
        """The lists of these servers; each has `list_seconds`, or only `most`, to respond, counted from its request.

        A server that is not awaited is represented by its last list. One that has none, or is awaited but expected to
        list the same as before, has `_MOMENT` to respond.
        """
        found: dict[str, Answer] = {}
        asked: dict[str, _Asking] = {}
        for server in servers:
            if (kept := self._kept.get((server, kind.method))) is not None:
                found[server] = kept
                continue
            asked[server] = self._ask(server, kind)
            found[server] = None
            if len(asked) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        longest, moment = self._limits.list_seconds, min(_MOMENT, self._limits.list_seconds)
        expected = {server for server in asked if (server, kind.method) in self._expected}
        awaited = [asking for server, asking in asked.items() if is_awaited(server) and server not in expected]
        await self._wait(awaited, longest if most is None else max(moment, min(most, longest)))
        briefly = [
            asking
            for server, asking in asked.items()
            if (is_awaited(server) and server in expected)
            or (not is_awaited(server) and (server, kind.method) not in self._said_last)
        ]
        await self._wait(briefly, moment)
        for server, asking in asked.items():
            found[server] = self._answer(asking, (server, kind.method))
        return found

    async def _wait(self, asked: Iterable[_Asking], most: float) -> None:
        ends = {asking.task: asking.began + most - time.monotonic() for asking in asked}
        waiting = [task for task, seconds in ends.items() if seconds > 0]
        if waiting:
            await asyncio.wait(waiting, timeout=max(ends.values()))

    def _answer(self, asking: _Asking, key: _Key) -> Answer:
        if not asking.task.done():
            asking.go_late()
            return self._said_last.get(key)
        error = asking.task.exception()
        if error is None:
            return asking.task.result()
        if isinstance(error, UpstreamError):
            return error
        raise error

    def _ask(self, server: str, kind: ListingKind) -> _Asking:
        """Ask a server, unless a request is already in progress."""
        key = (server, kind.method)
        asking = self._asking.get(key)
        if asking is None:
            self._spoken_of.add(server)
            asking = self._asking[key] = _Asking(asyncio.create_task(self._read(server, kind)), time.monotonic())
            asking.task.add_done_callback(lambda _task: self._answered(server, kind, asking))
        return asking

    def _answered(self, server: str, kind: ListingKind, asking: _Asking) -> None:
        key, task = (server, kind.method), asking.task
        is_current = self._asking.get(key) is asking
        if is_current:
            del self._asking[key]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            if asking.is_late:
                logger.warning("Cannot list the %s of %s: %s", kind.result_key, server, error)
            return
        if not is_current:
            return
        listed = task.result()
        self._expected.discard(key)
        self._on_listed(server, kind, listed)
        if self._tells_changes(server, kind):
            self._kept[key] = listed
        if asking.is_late or key in self._said_last:
            before, self._said_last[key] = self._said_last.get(key), listed
            if asking.is_late and (before is None or before.entries != listed.entries):
                self._on_late(kind.capability)

    async def _read(self, server: str, kind: ListingKind) -> Listed:
        try:
            async with asyncio.timeout(_LONGEST):
                return await self._read_pages(server, kind)
        except TimeoutError:
            raise CallTimeout(
                server, f"The server {server!r} did not finish its list within {_LONGEST:.0f} s."
            ) from None

    async def _read_pages(self, server: str, kind: ListingKind) -> Listed:
        entries: dict[str, dict[str, Any]] = {}
        cursor = Cursor()
        ttl_ms, scope = _TTL_MS if self._tells_changes(server, kind) else 0, "private"
        while cursor.has_more and len(entries) < self._limits.listed_items:
            try:
                page = await self._call(server, kind.method, cursor.params)
            except UpstreamRefusal as error:
                # Servers may declare resources and answer for no templates; that is an empty list, and no failure.
                if kind is TEMPLATES and error.code == types.METHOD_NOT_FOUND:
                    break
                raise
            take_entries(page.get(kind.result_key), kind, self._limits.listed_items, server, entries)
            ttl_ms = page["ttlMs"] if isinstance(page.get("ttlMs"), int) else ttl_ms
            scope = str(page.get("cacheScope", scope))
            cursor.follow(page)
        return Listed(entries, max(0, ttl_ms), scope)


def take_entries(
    listed: Any, kind: ListingKind, most: int, server: str, entries: dict[str, dict[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Add the usable entries of a page by their own names, up to the maximum per server."""
    entries = {} if entries is None else entries
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get(kind.identity), str):
            continue
        if len(entries) >= most:
            logger.warning("Server %s lists more than %d %s: the rest is left out.", server, most, kind.result_key)
            break
        entries.setdefault(entry[kind.identity], entry)
    return entries


@dataclass(frozen=True)
class DirectoryEntry:
    """One prompt, resource or template of a server."""

    server: str
    own: str
    public: str
    definition: dict[str, Any]


@dataclass(frozen=True)
class MergedList:
    """A complete list, and how long it may be cached."""

    entries: tuple[DirectoryEntry, ...]
    ttl_ms: int
    scope: str

    @lazy
    def by_public(self) -> Mapping[str, DirectoryEntry]:
        return {entry.public: entry for entry in self.entries}


@dataclass(frozen=True)
class Configured:
    """All servers of the server file, running or not."""

    names: ServerNames
    schemes: ServerSchemes


def put_together(listed: Mapping[str, Listed], kind: ListingKind, configured: Configured) -> MergedList:
    pairs = [(server, own) for server, one in listed.items() for own in one.entries]
    names = public_names(pairs, configured.names) if kind.is_named else public_uris(pairs, configured.schemes)
    entries = tuple(
        _entry(server, own, public, listed[server].entries[own], kind.identity)
        for (server, own), public in zip(pairs, names, strict=True)
    )
    is_public = bool(listed) and all(one.scope == "public" for one in listed.values())
    return MergedList(entries, least_ttl_ms(listed), "public" if is_public else "private")


def least_ttl_ms(listed: Mapping[str, Listed]) -> int:
    return min((one.ttl_ms for one in listed.values()), default=_TTL_MS)


def _entry(server: str, own: str, public: str, definition: dict[str, Any], identity: str) -> DirectoryEntry:
    return DirectoryEntry(server, own, public, definition if own == public else {**definition, identity: public})


_SIZE = 1_000
_LONGEST_CURSOR = 20

T = TypeVar("T")


def page(
    entries: Sequence[T], key: str, params: Mapping[str, Any] | None, shown: Callable[[T], Mapping[str, Any]]
) -> dict[str, Any]:
    """The page at a request's cursor, under the list's own key; `shown` converts only the entries on that page."""
    cursor = (params or {}).get("cursor")
    start = 0
    if isinstance(cursor, str) and cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR:
        start = int(cursor)
    if cursor is not None and not 0 < start < len(entries):
        raise MCPError(types.INVALID_PARAMS, "This cursor is not or no longer valid: list from the beginning")
    result: dict[str, Any] = {key: [shown(entry) for entry in entries[start : start + _SIZE]]}
    if start + _SIZE < len(entries):
        result["nextCursor"] = str(start + _SIZE)
    return result


# Remembers what servers listed last, in this start or an earlier one: prompts, resources, templates. These lists are
# used while servers start. The directory reports new ones; reads and stores in the background.

NOTHING = Listed({}, 0, "private")
"""The list of a server that has no entries of a kind."""


class ListMemory(Protocol):
    """Where lists are stored: by server, then by the kind's key in results."""

    async def recall_lists(self, specs: Sequence[ServerSpec]) -> Mapping[str, Mapping[str, Any]]: ...

    async def store_lists(self, state: UpstreamState, lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> None: ...


class MemoryOfShared:
    """A memory without the lists of callers' own servers, which are nobody else's. Stores nothing: the directory that
    all callers share does.
    """

    def __init__(self, memory: ListMemory) -> None:
        self._memory = memory

    async def recall_lists(self, specs: Sequence[ServerSpec]) -> Mapping[str, Mapping[str, Any]]:
        return await self._memory.recall_lists([spec for spec in specs if not spec.is_of_each_caller])

    async def store_lists(self, state: UpstreamState, lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        del state, lists


class Remembered:
    """The last list of each kind of each server."""

    def __init__(self, states: Callable[[], Mapping[str, UpstreamState]], memory: ListMemory | None, most: int) -> None:
        """`most`: maximum entries of one list."""
        self._states = states
        self._memory = memory
        self._most = most
        self._lists: dict[str, dict[str, Listed]] = {}
        self._asked_for: set[str] = set()
        self._to_recall: set[str] = set()
        self._unsaved: set[str] = set()
        self._saving: asyncio.Task[None] | None = None
        self._recalls = BackgroundTasks(logger, "What servers listed last could not be read")
        self._saves = BackgroundTasks(logger, "What servers list could not be stored")

    def of(self, server: str, kind: ListingKind) -> Listed | None:
        """What a server listed last; None if unknown."""
        return self._lists.get(server, {}).get(kind.result_key)

    def note(self, server: str, kind: ListingKind, listed: Listed) -> None:
        """Record a server's list. A list that stays the same is not stored again."""
        before = self.of(server, kind)
        self._lists.setdefault(server, {})[kind.result_key] = listed
        if before is None or before.entries != listed.entries:
            self._save_later(server)

    def forget(self, server: str) -> None:
        """Forget a server that was removed, or whose name now means another one."""
        self._lists.pop(server, None)
        self._asked_for.discard(server)

    def recall(self, server: str) -> None:
        """Begin to load what a server listed at an earlier start."""
        if self._memory is None or server in self._asked_for:
            return
        self._asked_for.add(server)
        self._to_recall.add(server)
        if len(self._to_recall) == 1:
            # All servers of a start are added in one turn of the event loop and loaded together.
            self._recalls.spawn(self._recall(self._memory))

    @property
    def is_recalled(self) -> bool:
        """Whether everything requested has been loaded or found missing."""
        return not self._recalls

    async def recalled(self) -> None:
        """Wait until `is_recalled`."""
        await self._recalls.settled()

    def store(self) -> None:
        """Store everything again, because the database was not available before."""
        for server in self._lists:
            self._save_later(server)

    async def _recall(self, memory: ListMemory) -> None:
        states = self._states()
        specs = {name: states[name].spec for name in self._to_recall if name in states}
        self._to_recall.clear()
        for name, lists in (await memory.recall_lists(list(specs.values()))).items():
            state = self._states().get(name)
            # Skipped if the name means another server by now.
            if state is None or state.spec != specs[name]:
                continue
            for kind in KINDS:
                if kind.result_key in lists:
                    # A list received meanwhile is newer.
                    entries = take_entries(lists[kind.result_key], kind, self._most, name)
                    self._lists.setdefault(name, {}).setdefault(kind.result_key, Listed(entries, 0, "private"))

    def _save_later(self, server: str) -> None:
        if self._memory is None:
            return
        self._unsaved.add(server)
        if self._saving is None or self._saving.done():
            self._saving = self._saves.spawn(self._save(self._memory))

    async def _save(self, memory: ListMemory) -> None:
        """Saves one server after the other; one that changes its lists constantly is saved in the state at its turn."""
        while self._unsaved:
            server = self._unsaved.pop()
            state, lists = self._states().get(server), self._lists.get(server)
            if state is not None and lists:
                await memory.store_lists(state, {key: list(one.entries.values()) for key, one in lists.items()})
