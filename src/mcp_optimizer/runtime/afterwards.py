"""Work that a reply need not wait for: done in order, in the next turn of the event loop.

Used for what is written down of a call. Whoever needs it to be done before that asks for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

Work = Callable[[], None]


class Afterwards:
    """The work of one part, in the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Work] = deque()

    def do(self, work: Work) -> None:
        """Soon; at once where no event loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work()
            return
        if not self._waiting:
            loop.call_soon(self.finish)
        self._waiting.append(work)

    def finish(self) -> None:
        """Do now what waits."""
        while self._waiting:
            work = self._waiting.popleft()
            try:
                work()
            except Exception:
                # It costs neither the rest nor whoever comes next.
                logger.exception("Cannot do what was left for later")
