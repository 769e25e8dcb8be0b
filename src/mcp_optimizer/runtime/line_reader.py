"""A stream reader that passes a line to a callback in the same turn of the event loop in which it arrives.

Reading a stream wakes a task, which runs in the next turn. Nearly every message arrives alone and complete, and needs
no such task. All other data waits to be read as from any stream: a partial line, several lines, or a line that arrives
while the reader is busy. So the order of lines, the limits and the flow control are the reader's own. Knows nothing of
messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_LONGEST = 64 * 1024
"""Bytes of a line that is passed on directly; handling it must not delay other requests."""

Takes = Callable[[bytes], bool]
"""Takes a line without its end; returns False if it must be read like the others. Must not raise."""


class LineReader(asyncio.StreamReader):
    """A stream reader with a callback that may take lines when they arrive."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._takes: Takes | None = None
        self._is_awaited = False
        self._unread = 0
        self._is_within_line = False

    def show_lines_to(self, takes: Takes) -> None:
        """From now on `takes` is called with each line that arrives alone while a task waits in `read`."""
        self._takes = takes

    def feed_data(self, data: Any) -> None:
        if self._is_awaited and not self._unread and not self._is_within_line and self._is_taken(data):
            return
        self._unread += len(data)
        self._is_within_line = not data.endswith(b"\n")
        super().feed_data(data)

    def _is_taken(self, data: bytes) -> bool:
        is_line = len(data) <= _LONGEST and data.find(b"\n") == len(data) - 1
        return is_line and self._takes is not None and self._takes(data[:-1])

    async def read(self, n: int = -1) -> bytes:
        if n < 0:
            # The base class reads to the end by calling this method again.
            return await super().read(n)
        self._is_awaited = True
        try:
            data = await super().read(n)
        finally:
            self._is_awaited = False
        self._unread -= len(data)
        return data
