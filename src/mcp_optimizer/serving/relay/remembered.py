"""Remembers what servers listed last, in this start or an earlier one: prompts, resources, templates.

These lists are used while servers start. The directory reports new ones; reads and stores in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.relay.listings import KINDS, Listed, ListingKind, take_entries
from mcp_optimizer.upstream.state import UpstreamState

logger = logging.getLogger(__name__)

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
