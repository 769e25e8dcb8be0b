"""Keeps what happens: events are queued, and written in batches beside the work. Never fails or delays a call.

Called by whoever answers a client. A database that is locked, full or gone costs history, and the events that
were lost are counted; it costs no caller anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from mcp_optimizer.domain.events import Event
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_CAPACITY = 20_000
"""Events that wait for a database that does not answer; further ones are dropped."""

_BATCH = 1_000
_INTERVAL = 2.0
_LONGEST_PAUSE = 60.0
_LAST_CHANCE = 2.0
"""Seconds to write what is left when the gateway ends."""

_FORGET_INTERVAL = 3_600.0
_DAY = 86_400.0
_LISTENER_BACKLOG = 200


class Store(Protocol):
    """Where events are kept; raises a CatalogError when it cannot."""

    async def write(self, events: Sequence[Event]) -> None: ...

    async def forget(self, before: float) -> int: ...


class Recorder:
    """Takes events in, tells those who watch, and writes them down in batches."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store | None]],
        retention_days: float = 90.0,
        capacity: int = _CAPACITY,
        interval: float = _INTERVAL,
    ) -> None:
        self._store = store
        self._retention = retention_days * _DAY
        self._capacity = capacity
        self._interval = interval
        self._queue: deque[Event] = deque()
        self._listeners: list[Callable[[Event], None]] = []
        self._tasks = BackgroundTasks(logger, "History is not written any more")
        self._writing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._forgot_at = 0.0
        self.written = 0
        self.dropped = 0

    @property
    def is_heard(self) -> bool:
        """Whether events reach anybody; if not, they need not be made."""
        return self._writing is not None or bool(self._listeners)

    @property
    def waiting(self) -> int:
        """Events that are not written yet."""
        return len(self._queue)

    def record(self, event: Event) -> None:
        """Take an event in; cheap, and never raises for what happens to it later."""
        for listener in self._listeners:
            listener(event)
        if self._writing is None:
            return
        if len(self._queue) >= self._capacity:
            self.drop()
            return
        self._queue.append(event)

    def drop(self) -> None:
        """Count an event that could not be kept."""
        self.dropped += 1

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Be told of every event from now on; the listener must be quick."""
        self._listeners.append(listener)

    @contextlib.contextmanager
    def watched(self) -> Iterator[asyncio.Queue[Event]]:
        """A queue of events as they happen, for one who watches; whoever does not keep up misses some."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_LISTENER_BACKLOG)

        def put(event: Event) -> None:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(event)

        self._listeners.append(put)
        try:
            yield queue
        finally:
            self._listeners.remove(put)

    def start(self) -> None:
        """Begin to write; without this, events are only told to those who watch."""
        self._writing = self._tasks.spawn(self._write(), name="history")

    async def stop(self) -> None:
        """Write what is left, if that can be done in a moment."""
        self._ending.set()
        if self._writing is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._writing, _LAST_CHANCE)
        self._writing = None
        self.dropped += len(self._queue)
        self._queue.clear()

    async def _write(self) -> None:
        pause = self._interval
        while True:
            is_ending = await self._paused(pause)
            # Asked each time: a database that was down at the start may be there by now.
            store = await self._store()
            if store is None or await self._write_waiting(store):
                pause = self._interval
            else:
                pause = min(pause * 2, _LONGEST_PAUSE)
            if is_ending:
                return

    async def _paused(self, seconds: float) -> bool:
        """Wait for the next batch; whether it is the last."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        return self._ending.is_set()

    async def _write_waiting(self, store: Store) -> bool:
        try:
            while self._queue:
                batch = list(islice(self._queue, _BATCH))
                await store.write(batch)
                for _ in batch:
                    self._queue.popleft()
                self.written += len(batch)
            await self._forget_old(store)
        except CatalogError as error:
            logger.warning(
                "History cannot be written now: %s. %d events wait, %d were dropped.",
                error,
                len(self._queue),
                self.dropped,
            )
            return False
        except Exception:
            # A mistake of ours must not end the writing for good; what waits is tried again, or dropped and counted.
            logger.exception("History could not be written")
            return False
        return True

    async def _forget_old(self, store: Store) -> None:
        now = time.time()
        if now - self._forgot_at > _FORGET_INTERVAL:
            self._forgot_at = now
            await store.forget(now - self._retention)
