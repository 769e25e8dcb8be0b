"""Writes audit entries to one place, in batches, in the background. Used by the trail; each place has its own queue.

A locked database or a full disk therefore delays neither callers nor the other place. Entries wait as long as the queue
has room; lost ones are counted, logged, and reported in an entry of the next batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

CAPACITY = 20_000
"""Maximum entries that wait while a place cannot be written."""

LOST = "audit/lost"
"""The method of an entry that reports how many entries are missing."""

_BATCH = 500
_TOGETHER = 0.25
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
            await self._paused(_TOGETHER)
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
