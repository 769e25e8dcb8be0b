"""The trail of one gateway: accepts entries, keys their hashes, and has them written to the table and to the file.

Called by every part that records an act, on the event loop; returns at once. What cannot be written to one of the two
still goes to the other. Requests refused before their caller was known become one entry a minute for each reason, with
a count: anybody can send a million of them. `SessionLabels` gives history and audit the same names for conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from mcp_optimizer.access.audit.audit_file import AuditFile, AuditOptions
from mcp_optimizer.access.audit.batch_writer import CAPACITY, AuditPlace, AuditWriter
from mcp_optimizer.access.audit.digests import HashKey
from mcp_optimizer.domain.audit import AuditEntry, bounded
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.deferred_work import Afterwards
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.runtime.terminal_text import printable

_WINDOW = 60.0
_MOST_REASONS = 64
_OTHER = "other reasons"


class Refusals:
    """Counts by reason. The first is told at once, those that follow together."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[int, str], tuple[float, int]] = {}

    def refused(self, status: int, reason: str) -> Iterator[AuditEntry]:
        """The entries that are due now, with this one counted."""
        now = self._clock()
        key = (status, reason)
        if key not in self._counts and len(self._counts) >= _MOST_REASONS:
            key = (status, _OTHER)
        since, count = self._counts.get(key, (-_WINDOW, 0))
        if now - since >= _WINDOW:
            self._counts[key] = (now, 0)
            yield _entry(now, key, count + 1)
        else:
            self._counts[key] = (since, count + 1)

    def due(self, *, at_the_end: bool = False) -> Iterator[AuditEntry]:
        """The entries whose minute is over, or all of them; reasons that nobody gives any more are forgotten."""
        now = self._clock()
        for key, (since, count) in list(self._counts.items()):
            if at_the_end or now - since >= _WINDOW:
                del self._counts[key]
                if count:
                    yield _entry(now, key, count)
                    self._counts[key] = (now, 0)


def _entry(now: float, key: tuple[int, str], count: int) -> AuditEntry:
    status, reason = key
    return AuditEntry(
        round(now * 1_000),
        caller="",
        method="http/refused",
        decision="deny",
        rule=reason,
        outcome=f"{status}, {count} times" if count > 1 else f"{status}",
    )


_LONGEST_NAME = 80
_MOST_KNOWN = 10_000
_LABELS_KEPT = 86_400


class SessionLabels:
    """A hash for each conversation, which does not say whose it is, and the client's own name, made printable."""

    def __init__(self, shared: Callable[[], str] = str) -> None:
        """`shared` is known to all gateways that share their clients, so that a client has one conversation at all of
        them; empty where there is only this one, or it is not known yet.
        """
        self._shared = shared
        # On stdio every process is one conversation, and its caller is always "local".
        self._process = secrets.token_hex(8)
        # Keyed by the caller's names, never by the caller itself, which holds its client's complete connection.
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def of(self, caller: Caller) -> tuple[str, str]:
        """The conversation and the client."""
        link = caller.link
        salt, conversation = self._process, caller.key if link is None else link.key
        if link is not None and (shared := self._shared()):
            # A modern client has only its name, and would be one conversation for ever.
            salt = f"{shared} {round(time.time()) // _LABELS_KEPT}" if link.is_modern else shared
        key = (salt, conversation, caller.client)
        known = self._known.get(key)
        if known is None:
            session = hashlib.sha256(f"{salt} {conversation}".encode("utf-8", "replace")).hexdigest()[:16]
            known = (session, printable(caller.client)[:_LONGEST_NAME])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known


logger = logging.getLogger(__name__)

_KEY_PATIENCE = 2.0
"""Seconds that entries wait for the database's key before they are keyed with another."""

_TOGETHER = 0.05
"""Seconds for which acts are collected before their entries are made."""

_LONGEST_PAUSE = 60.0
_FORGET_INTERVAL = 3_600.0
_DAY = 86_400.0
_MINUTE = 60.0


class AuditStore(Protocol):
    """The table; raises a CatalogError if it cannot be used."""

    async def write(self, entries: Sequence[AuditEntry]) -> None: ...

    async def forget(self, before: float) -> int: ...

    async def key(self) -> bytes: ...


Store = Callable[[], Awaitable[AuditStore | None]]


class AuditTrail:
    """Everything that happens, in two places."""

    def __init__(
        self, options: AuditOptions, store: Store | None, labels: SessionLabels | None = None, capacity: int = CAPACITY
    ) -> None:
        """`store`: None without a database."""
        self.labels = labels or SessionLabels()
        self.keeps_arguments = options.arguments
        self._store = store
        self._capacity = capacity
        self._key = None if store is not None else HashKey.made_up()
        self._unkeyed: list[AuditEntry] = []
        self._refusals = Refusals()
        self._tasks = BackgroundTasks(logger, "The audit is not complete")
        self.afterwards = Afterwards(_TOGETHER)
        """Where entries are made that nobody waits for."""
        self._is_started = False
        self.is_on = False
        """Whether anything is written; if not, entries need not be made."""
        self._reading: asyncio.Task[bool] | None = None
        places: list[AuditPlace] = []
        if store is not None:
            places.append(_InTable(store, options.days))
        if (file := AuditFile.of(options)) is not None:
            places.append(_InFile(file))
        self._writers = [AuditWriter(place, capacity) for place in places]

    @property
    def dropped(self) -> int:
        """Entries that are missing in one of the places."""
        return sum(writer.dropped for writer in self._writers)

    def add(self, entry: AuditEntry) -> None:
        if not self._writers:
            return
        # What happened before it stands before it.
        self.afterwards.finish()
        entry = bounded(entry)
        if self._key is not None:
            entry = self._key.keyed(entry)
            for writer in self._writers:
                writer.put(entry)
        elif len(self._unkeyed) < self._capacity:
            self._unkeyed.append(entry)
        else:
            for writer in self._writers:
                writer.lost(1)

    def refused(self, status: int, reason: str) -> None:
        """A request was refused before its caller was known. A flood of them becomes one entry a minute."""
        for entry in self._refusals.refused(status, reason):
            self.add(entry)

    def start(self) -> None:
        """Start writing; before this, entries wait."""
        self._is_started = True
        self.is_on = bool(self._writers)
        if self._store is not None:
            self._reading = self._tasks.spawn(self._read_key(self._store))
            self._tasks.spawn(self._find_key(self._store, self._reading))
        self._tasks.spawn(self._tell_refusals())
        for writer in self._writers:
            writer.start()

    async def stop(self) -> None:
        """Write what is left, if that is quick; also what was added without a start."""
        self.afterwards.finish()
        if not self._is_started and not self._unkeyed and not any(writer.waiting for writer in self._writers):
            return
        for entry in self._refusals.due(at_the_end=True):
            self.add(entry)
        if not self._is_started:
            self.start()
        if self._key is None and self._reading is not None:
            await asyncio.wait([self._reading], timeout=_KEY_PATIENCE)
            self._use(self._key or HashKey.made_up())
        self._tasks.cancel()
        await asyncio.gather(*(writer.stop() for writer in self._writers))
        self._is_started = self.is_on = False

    def _use(self, key: HashKey) -> None:
        self._key = key
        waiting, self._unkeyed = self._unkeyed, []
        for entry in map(key.keyed, waiting):
            for writer in self._writers:
                writer.put(entry)

    async def _find_key(self, store: Store, reading: asyncio.Task[bool]) -> None:
        """Use the key of the database, from when it can be read; until then, after a while, another."""
        await asyncio.wait([reading], timeout=_KEY_PATIENCE)
        if self._key is None:
            self._use(HashKey.made_up())
        pause = _KEY_PATIENCE
        while not await reading:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            reading = self._tasks.spawn(self._read_key(store))

    async def _read_key(self, store: Store) -> bool:
        try:
            if (stored := await store()) is None:
                return False
            self._use(HashKey(await stored.key()))
        except CatalogError as error:
            logger.warning("Hashes of the audit have a key of this process, not of the database: %s.", error)
            return False
        return True

    async def _tell_refusals(self) -> None:
        while True:
            await asyncio.sleep(_MINUTE)
            for entry in self._refusals.due():
                self.add(entry)


class _InTable:
    """The table, from which old entries are deleted."""

    name = "the database"

    def __init__(self, store: Store, days: float) -> None:
        self._store = store
        self._kept = days * _DAY
        self._forgot_at = 0.0

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        # Asked each time, because a database that was down at the start may be available by now.
        stored = await self._store()
        if stored is None:
            raise CatalogError("it is not open")
        await stored.write(entries)
        now = time.time()
        if now - self._forgot_at > _FORGET_INTERVAL:
            self._forgot_at = now
            with contextlib.suppress(CatalogError):
                # These entries are written, whatever becomes of the old ones.
                await stored.forget(now - self._kept)


class _InFile:
    def __init__(self, file: AuditFile) -> None:
        self._file = file
        self.name = f"the file {file.path}"

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        await asyncio.to_thread(self._file.append, entries)
