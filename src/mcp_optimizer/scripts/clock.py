"""The time that a script may take, which stands still while a person is asked. Called by the parts of one run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class ScriptClock:
    """Entered around a run, which it ends with TimeoutError when its seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = 0.0
        self._stops = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._go()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, where)

    @property
    def is_over(self) -> bool:
        """Whether it ended the run."""
        return self._timeout.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While somebody is asked."""
        self._stops += 1
        if self._stops == 1:
            self._left -= asyncio.get_running_loop().time() - self._since
            self._reschedule(None)
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._go()

    def _go(self) -> None:
        self._since = asyncio.get_running_loop().time()
        self._reschedule(self._since + self._left)

    def _reschedule(self, when: float | None) -> None:
        try:
            self._timeout.reschedule(when)
        except RuntimeError:
            # The run is ending already.
            return
