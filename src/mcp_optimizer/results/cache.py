"""Caches results of read-only tools and merges identical concurrent calls into one.

In memory, per caller; called by the pipeline. Does not know how results are made. A read that started before a write to
its server is never cached, whichever gateway wrote. While the other gateways' writes do not arrive, nothing cached is
served.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.largejson.compact_json import Written

Result = dict[str, Any]


class Others(Protocol):
    """The other gateways that use the same database."""

    def is_current(self) -> bool: ...

    async def announce(self, news: ChangeKind, *names: str) -> None: ...


@dataclass(frozen=True)
class CacheKey:
    """Everything that must match for a cached result to be served."""

    server: str
    digest: bytes

    @classmethod
    def of(
        cls, caller: str, server: str, tool: str, definition_hash: str, arguments: Mapping[str, Any], select: str = ""
    ) -> CacheKey:
        if isinstance(arguments, Written):
            # Keys keep the order they were written in: sorting takes longer than all the rest.
            canonical = hashlib.sha256(arguments.json).hexdigest()
        else:
            canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
        parts = json.dumps([caller, server, tool, definition_hash, select, canonical])
        return cls(server, hashlib.sha256(parts.encode()).digest())


@dataclass(frozen=True)
class _Entry:
    result: Result
    size: int
    until: float


class ResultCache:
    """Holds results by key, evicting the least recently used, and the calls in progress."""

    def __init__(
        self, megabytes: float = 64, clock: Callable[[], float] = time.monotonic, others: Others | None = None
    ) -> None:
        """`others`: gateways that may write to the same servers; None if this is the only one."""
        self._others = others
        self._most = round(megabytes * 1_000_000)
        self._clock = clock
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._size = 0
        self._under_way: dict[CacheKey, _Flight] = {}
        self._writes: defaultdict[str, int] = defaultdict(int)

    def get(self, key: CacheKey) -> Result | None:
        if self._others is not None and not self._others.is_current():
            # Another gateway may have written to the server without this one having heard of it.
            return None
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= self._clock():
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.result

    def put(self, key: CacheKey, result: Result, size: int, seconds: float) -> None:
        self.drop(key)
        if size > self._most:
            return
        self._entries[key] = _Entry(result, size, self._clock() + seconds)
        self._size += size
        while self._size > self._most:
            self.drop(next(iter(self._entries)))

    def drop(self, key: CacheKey) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._size -= entry.size

    def clear(self, server: str) -> None:
        """Drop everything read from a server, because a call wrote or is about to write to it."""
        self._writes[server] += 1
        for key in [key for key in self._entries if key.server == server]:
            self.drop(key)
        # Calls made from now on must not share a read that started earlier.
        for key in [key for key in self._under_way if key.server == server]:
            del self._under_way[key]

    def forget(self, servers: Sequence[str]) -> None:
        """Drop what was read from these servers, because another gateway wrote to them; if none are named, drop all."""
        for server in servers or {key.server for key in (*self._entries, *self._under_way)}:
            self.clear(server)

    async def written(self, server: str) -> None:
        """Drop everything read from a server after a write to it, here and in the other gateways."""
        self.clear(server)
        if self._others is not None:
            await self._others.announce(ChangeKind.WRITTEN, server)

    async def once(self, key: CacheKey, ask: Callable[[], Awaitable[Result]]) -> tuple[Result, bool, bool]:
        """Return the result, whether it was shared with another call, and whether it may be cached."""
        flight = self._under_way.get(key)
        is_shared = flight is not None
        if flight is None:
            flight = self._under_way[key] = _Flight(asyncio.ensure_future(ask()), self._writes[key.server])
        try:
            result = await flight.landed()
        finally:
            if flight.is_over and self._under_way.get(key) is flight:
                del self._under_way[key]
        return result, is_shared, flight.writes == self._writes[key.server]


class _Flight:
    """A call in progress, how many callers wait for it, and the write count when it began."""

    def __init__(self, task: asyncio.Future[Result], writes: int) -> None:
        self.writes = writes
        self._task = task
        self._waiting = 0

    async def landed(self) -> Result:
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if self.is_over:
                # The last waiting caller has gone, so the answer is not needed.
                self._task.cancel()

    @property
    def is_over(self) -> bool:
        return self._task.done() or not self._waiting
