"""Tells whoever takes longer than a moment: one timer for all, because nearly all are done before. Knows no MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Longer = Callable[[], None]


class Moments:
    """Calls back once, after one to two moments, unless it is over before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._new: set[Longer] = set()
        self._old: set[Longer] = set()
        """Those that began before the last look."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, longer: Longer) -> None:
        self._new.add(longer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def end(self, longer: Longer) -> None:
        self._new.discard(longer)
        self._old.discard(longer)

    def _look(self) -> None:
        late, self._old, self._new = self._old, self._new, set()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look) if self._old else None
        for longer in late:
            longer()
