"""The audit trail of one gateway: accepts entries, keys their hashes, and writes them to the table and the file in
batches.

Called on the event loop by everything that records an act; returns at once. An entry that one of the two cannot store
still goes to the other. Requests refused before their caller was known become one counted entry per minute and reason,
because anyone can send a million of them. `SessionLabels` gives history and audit the same names for conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from mcp_optimizer.access.audit.audit_file import AuditFile, AuditOptions
from mcp_optimizer.access.audit.recording import HashKey
from mcp_optimizer.domain.audit import AuditEntry, bounded
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import Afterwards, BackgroundTasks
from mcp_optimizer.runtime.terminal_text import printable

logger = logging.getLogger(__name__)

# Writes audit entries to one place, in batches, in the background. A locked database or a full disk therefore delays
# neither callers nor the other place. Entries wait as long as the queue has room; lost ones are counted, logged, and
# reported in an entry of the next batch.

CAPACITY = 20_000
"""Maximum entries that wait while a place cannot be written."""

LOST = "audit/lost"
"""The method of an entry that reports how many entries are missing."""

_BATCH = 500
_WRITTEN_TOGETHER = 0.25
"""Seconds to collect entries for one batch."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LOG_INTERVAL = 60.0
_LAST_CHANCE = 2.0
"""Seconds to write the remaining entries when the gateway stops."""


class AuditPlace(Protocol):
    """A place that entries are written to: the table or the file."""

    @property
    def name(self) -> str: ...

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        """Write all entries or none; raises CatalogError or OSError."""
        ...


class AuditWriter:
    """The queue of one place."""

    def __init__(self, place: AuditPlace, capacity: int = CAPACITY, first_pause: float = _FIRST_PAUSE) -> None:
        self._place = place
        self._capacity = capacity
        self._first_pause = first_pause
        self._queue: deque[AuditEntry] = deque()
        self._arrived, self._ending = asyncio.Event(), asyncio.Event()
        self._tasks = BackgroundTasks(logger, "The audit is not written any more")
        self._unsaid = 0
        self._logged_at = float("-inf")
        self.written = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Entries that are not written yet."""
        return len(self._queue)

    def put(self, entry: AuditEntry) -> None:
        queue = self._queue
        if len(queue) >= self._capacity:
            self.lost(1)
            return
        if not queue:
            self._arrived.set()
        queue.append(entry)

    def lost(self, count: int) -> None:
        """Count and log entries that could not be kept."""
        self.dropped += count
        self._unsaid += count
        if count and time.monotonic() - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = time.monotonic()
            logger.error(
                "Entries of the audit that are missing in %s so far: %d. It cannot be written, or not fast enough.",
                self._place.name,
                self.dropped,
            )

    def start(self) -> None:
        self._tasks.spawn(self._write(), name=f"audit: {self._place.name}")

    async def stop(self) -> None:
        """Write the remaining entries within a short time limit; log how many are lost."""
        self._ending.set()
        self._arrived.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tasks.settled(), _LAST_CHANCE)
        self._tasks.cancel()
        self.lost(len(self._queue))
        self._queue.clear()

    async def _write(self) -> None:
        pause = self._first_pause
        while not (self._ending.is_set() and not self._queue):
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            await self._paused(_WRITTEN_TOGETHER)
            is_ending = self._ending.is_set()
            while not await self._write_waiting():
                if is_ending:
                    return
                await self._paused(pause)
                is_ending = self._ending.is_set()
                pause = min(pause * 2, _LONGEST_PAUSE)
            pause = self._first_pause

    async def _paused(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    async def _write_waiting(self) -> bool:
        # Only the entries waiting now: during steady traffic, each later one would become a transaction of its own.
        waiting = len(self._queue)
        try:
            while waiting > 0:
                batch = list(islice(self._queue, _BATCH))
                waiting -= len(batch)
                unsaid = self._unsaid
                await self._place.write([*_lost_before(unsaid), *batch])
                self._unsaid -= unsaid
                for _ in batch:
                    self._queue.popleft()
                self.written += len(batch)
                if len(batch) < _BATCH and not self._ending.is_set():
                    # Leave later entries for the next batch: a transaction for each would cost more than the calls.
                    break
        except (CatalogError, OSError) as error:
            logger.warning("Cannot write the audit to %s now: %s. %d waiting.", self._place.name, error, self.waiting)
            return False
        except Exception:
            # A bug of ours must not stop the writer for good; waiting entries are tried again, or dropped and counted.
            logger.exception("Cannot write the audit to %s", self._place.name)
            return False
        return True


def _lost_before(count: int) -> list[AuditEntry]:
    if not count:
        return []
    return [AuditEntry(time.time_ns() // 1_000_000, method=LOST, outcome=f"{count} not written here before this")]


_WINDOW = 60.0
_MOST_REASONS = 64
_OTHER = "other reasons"


class Refusals:
    """Counts refusals by reason. The first becomes an entry at once, later ones one entry per minute."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[int, str], tuple[float, int]] = {}

    def refused(self, status: int, reason: str) -> Iterator[AuditEntry]:
        """Count a refusal; yields the entries that are due now."""
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
        """The entries whose minute is over, or all of them. Reasons without new refusals are forgotten."""
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
    """Labels each conversation with a hash that does not reveal whose it is, and with the client's printable name."""

    def __init__(self, shared: Callable[[], str] = str, *, has_one_client: bool = False) -> None:
        """`shared`: returns the key of all gateways that share their clients, so a client has the same conversation on
        all of them; empty if there is only this gateway, or the key is not known yet. `has_one_client`: as on stdio.
        """
        self._shared = shared
        self._has_one_client = has_one_client
        # On stdio the process is one conversation, and its caller is always "local".
        self._process = secrets.token_hex(8)
        # Keyed by the caller's names, never by the caller itself, which keeps its client's whole connection alive.
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def of(self, caller: Caller) -> tuple[str, str]:
        """The labels of a caller's conversation and client."""
        link = caller.link
        salt, conversation = self._process, caller.key if link is None else link.key
        if link is not None and (shared := self._shared()):
            # A modern client is known only by its name, and would stay one conversation forever.
            salt = f"{shared} {round(time.time()) // _LABELS_KEPT}" if link.is_modern else shared
        key = (salt, conversation, caller.client)
        known = self._known.get(key)
        if known is None:
            session = hashlib.sha256(f"{salt} {conversation}".encode("utf-8", "replace")).hexdigest()[:16]
            # Over HTTP, a modern client has no session: its runs, one after another or at a time, are not told apart.
            session = f"~{session[1:]}" if link is not None and link.is_modern and not self._has_one_client else session
            known = (session, printable(caller.client)[:_LONGEST_NAME])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known


_KEY_PATIENCE = 2.0
"""Seconds that entries wait for the database's key before they are keyed with a random one."""

_RECORDED_TOGETHER = 0.05
"""Seconds to collect acts before their entries are made."""
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
    """Writes every entry to the table and to the file, as far as each is configured."""

    def __init__(
        self, options: AuditOptions, store: Store | None, labels: SessionLabels | None = None, capacity: int = CAPACITY
    ) -> None:
        """`store` is None without a database."""
        self.labels = labels or SessionLabels()
        self.keeps_arguments = options.arguments
        self._store = store
        self._capacity = capacity
        self._key = None if store is not None else HashKey.made_up()
        self._unkeyed: list[AuditEntry] = []
        self._refusals = Refusals()
        self._tasks = BackgroundTasks(logger, "The audit is not complete")
        self.afterwards = Afterwards(_RECORDED_TOGETHER)
        """Defers making the entries, so that no caller waits for it."""
        self._is_started = False
        self.is_on = False
        """Whether entries are written; if not, they need not be made."""
        self._reading: asyncio.Task[bool] | None = None
        places: list[AuditPlace] = []
        if store is not None:
            places.append(_InTable(store, options.days))
        if (file := AuditFile.of(options)) is not None:
            places.append(_InFile(file))
        self._writers = [AuditWriter(place, capacity) for place in places]

    @property
    def dropped(self) -> int:
        """Entries missing in the table or the file."""
        return sum(writer.dropped for writer in self._writers)

    def add(self, entry: AuditEntry) -> None:
        if not self._writers:
            return
        # Deferred entries of earlier acts must come first.
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
        """Record a request refused before its caller was known. A flood of them becomes one entry per minute."""
        for entry in self._refusals.refused(status, reason):
            self.add(entry)

    def start(self) -> None:
        """Start writing; entries added earlier wait until then."""
        self._is_started = True
        self.is_on = bool(self._writers)
        if self._store is not None:
            self._reading = self._tasks.spawn(self._read_key(self._store))
            self._tasks.spawn(self._find_key(self._store, self._reading))
        self._tasks.spawn(self._tell_refusals())
        for writer in self._writers:
            writer.start()

    async def stop(self) -> None:
        """Write the remaining entries within a short time limit, including those added before a start."""
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
        """Use the database's key as soon as it can be read; if that takes too long, a random key until then."""
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
    """The table, including the deletion of old entries."""

    name = "the database"

    def __init__(self, store: Store, days: float) -> None:
        self._store = store
        self._kept = days * _DAY
        self._forgot_at = 0.0

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        # Asked each time, because a database that was down at startup may be available by now.
        stored = await self._store()
        if stored is None:
            raise CatalogError("it is not open")
        await stored.write(entries)
        now = time.time()
        if now - self._forgot_at > _FORGET_INTERVAL:
            self._forgot_at = now
            with contextlib.suppress(CatalogError):
                # The new entries are written, even if deleting old ones fails.
                await stored.forget(now - self._kept)


class _InFile:
    def __init__(self, file: AuditFile) -> None:
        self._file = file
        self.name = f"the file {file.path}"

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        await asyncio.to_thread(self._file.append, entries)
