"""Records events: queues them and writes them to the database in the background, in batches. Never fails or delays a
call.

Called by the code that replies to clients. A database that is locked, full or missing costs only history; lost events
are counted. Listeners get every event; the log is one of them, at level `info`.
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
"""Events that may wait for a database that does not respond; later ones are dropped."""

_BATCH = 1_000
_INTERVAL = 2.0
_LONGEST_PAUSE = 60.0
_LAST_CHANCE = 2.0
"""Seconds to write the remaining events when the gateway stops."""

_FORGET_INTERVAL = 3_600.0
_DAY = 86_400.0
_LISTENER_BACKLOG = 200


class EventWriter(Protocol):
    """Where events are stored; raises a CatalogError if it cannot store them."""

    async def write(self, events: Sequence[Event]) -> None: ...

    async def forget(self, before: float) -> int: ...


class Recorder:
    """Accepts events, passes them to listeners, and writes them in batches."""

    def __init__(
        self,
        store: Callable[[], Awaitable[EventWriter | None]],
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
        """Whether anything receives events; if not, none need to be made."""
        return self._writing is not None or bool(self._listeners)

    @property
    def waiting(self) -> int:
        """Events that are not written yet."""
        return len(self._queue)

    def record(self, event: Event) -> None:
        """Accepts an event; cheap, and never raises for later failures."""
        for listener in self._listeners:
            listener(event)
        if self._writing is None:
            return
        if len(self._queue) >= self._capacity:
            self.drop()
            return
        self._queue.append(event)

    def drop(self) -> None:
        """Counts an event that could not be kept."""
        self.dropped += 1

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Calls the listener for every event from now on; it must be fast."""
        self._listeners.append(listener)

    @contextlib.contextmanager
    def watched(self) -> Iterator[asyncio.Queue[Event]]:
        """A queue of events as they happen, for one viewer; a slow viewer misses some."""
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
        """Starts writing; before this, only listeners get events."""
        self._writing = self._tasks.spawn(self._write(), name="history")

    async def stop(self) -> None:
        """Writes the remaining events, if that is quick."""
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
            # Requested each time, because a database that was down at the start may be available by now.
            store = await self._store()
            if store is None or await self._write_waiting(store):
                pause = self._interval
            else:
                pause = min(pause * 2, _LONGEST_PAUSE)
            if is_ending:
                return

    async def _paused(self, seconds: float) -> bool:
        """Waits for the next batch; returns whether it is the last."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        return self._ending.is_set()

    async def _write_waiting(self, store: EventWriter) -> bool:
        # Only events already in the queue, except the last time: events that arrive during a write would otherwise each
        # become a transaction of their own.
        waiting = len(self._queue)
        try:
            while self._queue if self._ending.is_set() else waiting > 0:
                batch = list(islice(self._queue, _BATCH))
                waiting -= len(batch)
                await store.write(batch)
                for _ in batch:
                    self._queue.popleft()
                self.written += len(batch)
                if len(batch) < _BATCH and not self._ending.is_set():
                    # Events that arrived meanwhile wait for more: a transaction for each would cost more than the
                    # calls.
                    break
            await self._forget_old(store)
        except CatalogError as error:
            logger.warning(
                "Cannot write history now: %s. %d events waiting, %d dropped.",
                error,
                len(self._queue),
                self.dropped,
            )
            return False
        except Exception:
            # A bug of ours must not stop the writing for good; waiting events are tried again, or dropped and counted.
            logger.exception("Cannot write history")
            return False
        return True

    async def _forget_old(self, store: EventWriter) -> None:
        now = time.time()
        if now - self._forgot_at > _FORGET_INTERVAL:
            self._forgot_at = now
            await store.forget(now - self._retention)


event_logger = logging.getLogger("mcp_optimizer.events")


def log_event(event: Event) -> None:
    """Logs an event on one line; programs find its parts as fields."""
    fields = {
        "event": event.kind.value,
        "session": event.session,
        "caller": event.caller,
        "client": event.client,
        "server": event.server,
        "tool": event.tool,
        "tokens": event.tokens,
        "full_tokens": event.full_tokens,
        "milliseconds": round(event.milliseconds, 3),
        "cached": event.cached,
        "truncated": event.truncated,
        "outcome": event.outcome.value,
    }
    which = " ".join(name for name in (event.server, event.tool) if name)
    event_logger.info(
        "%s %s%s, %d tokens, %.0f ms",
        event.kind.value,
        f"{which}: " if which else "",
        event.outcome.value,
        event.tokens,
        event.milliseconds,
        extra={"fields": fields},
    )
