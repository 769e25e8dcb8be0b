"""Background tasks: each is kept until it is done, its failure is logged, and all of them end together.

asyncio itself does not keep a task from being garbage-collected, and reports a failed one only as never awaited. Used
by every part that starts work without waiting for it; knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
