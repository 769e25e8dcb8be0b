"""Work beside requests: background tasks, each kept until it is done, and work that is done after a reply or in a
pause.

asyncio itself does not keep a task from being garbage-collected, and reports a failed one only as never awaited. Used
by every part that starts work without waiting for it; knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

# Work that requests do not wait for: done after a reply, or when no foreground work runs. `Afterwards` does the
# bookkeeping of a call in the next turn of the event loop, in order, or collects it for a little while.
# `ForegroundGate` makes background writes wait for a pause, because both share one interpreter.

Work = Callable[[], None]

_MOST = 32
"""Pieces of work that are collected. A call leaves two, of about 25 µs each, and requests wait for the whole batch."""


class Afterwards:
    """The deferred work of one part, done in the event loop's thread."""

    def __init__(self, together: float = 0.0) -> None:
        """`together`: seconds for which work is collected. In one batch it takes two thirds of the time that it takes
        between other work, which evicts its code from the processor's caches.
        """
        self._together = together
        self._waiting: deque[Work] = deque()
        self._due: asyncio.Handle | None = None
        self._is_finishing = False

    def do(self, work: Work) -> None:
        """Does the work soon; at once if no event loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work()
            return
        self._waiting.append(work)
        if self._due is None:
            self._due = loop.call_later(self._together, self.finish) if self._together else loop.call_soon(self.finish)
        elif len(self._waiting) == _MOST:
            self._due.cancel()
            self._due = loop.call_soon(self.finish)

    def finish(self) -> None:
        """Does all waiting work now; if work itself calls this, the rest follows after that work."""
        if self._is_finishing:
            return
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._is_finishing = True
        try:
            while self._waiting:
                _attempt(self._waiting.popleft())
        finally:
            self._is_finishing = False


def _attempt(work: Work) -> None:
    try:
        work()
    except Exception:
        # A failure must affect neither the rest of the work nor later requests.
        logger.exception("Cannot do deferred work")


_PATIENCE = 10.0
_BEGIN = 0.05
"""Seconds within which foreground work starts after a change."""


class ForegroundGate:
    """Tracks foreground work and makes background work wait for a pause in it."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._working = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Entered around foreground work."""
        self._working += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._quiet.set()

    async def wait(self) -> None:
        """Waits until no foreground work runs, up to a maximum time."""
        await asyncio.sleep(_BEGIN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._quiet.wait()


T = TypeVar("T")


class BackgroundTasks:
    """The tasks of one part."""

    def __init__(
        self,
        logger: logging.Logger,
        failure: str,
        expected: tuple[type[BaseException], ...] = (),
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """`failure`: the log message for a failed task, with its traceback; `expected` errors get only a debug line.

        `on_idle`: called whenever the last task is done.
        """
        self._logger = logger
        self._failure = failure
        self._expected = expected
        self._on_idle = on_idle
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many are not done yet."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Starts work. Its result can still be awaited."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settled(self) -> None:
        """Waits until no task is left, including tasks started meanwhile. Cancelling the wait cancels no task."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancels all tasks without waiting for them."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        while self._tasks:
            self.cancel()
            await asyncio.wait(self._tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, self._expected):
            self._logger.debug("%s: %s", self._failure, error)
        elif error is not None:
            self._logger.error(self._failure, exc_info=error)
        if not self._tasks and self._on_idle is not None:
            self._on_idle()
