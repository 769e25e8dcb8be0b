"""Work that requests do not wait for: done after a reply, or when no foreground work runs.

`Afterwards` does the bookkeeping of a call in the next turn of the event loop, in order, or collects it for a little
while. `ForegroundGate` makes background writes wait for a pause, because both share one interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

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
