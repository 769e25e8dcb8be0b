"""Tasks that run beside whoever began them: each is kept until it is done, its failure is logged, and all end together.

asyncio itself keeps no task from being collected, and says of a failed one only that nobody asked. Used by every part
that begins work without waiting for it; knows nothing of the work.
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
        """`failure`: what is logged when a task fails, with its traceback; of what is `expected`, only a debug line.

        `on_idle`: told whenever the last task is done.
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
        """Begin some work. Whoever needs its result may still wait for it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settled(self) -> None:
        """Wait until nothing is left to do, also of what is begun meanwhile. Whoever stops waiting stops no task."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Have all of them end, without waiting for it."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all of them, and wait until they have."""
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
