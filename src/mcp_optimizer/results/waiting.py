"""Complete results in memory that the database does not have yet, and writing them to it once it takes them.

Between the store and the database. Bounded in bytes: beyond that the oldest are lost, because what was cut last is what
is read next. The attempt to write the oldest is also the probe: as long as something waits, nothing new is tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from mcp_optimizer.domain.kept_results import Chunk, KeptResult
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
"""Seconds between two attempts to write."""


@dataclass(frozen=True, eq=False)
class HeldResult:
    """A complete result as it is stored, in memory."""

    result: KeptResult
    chunks: Sequence[Chunk] = field(repr=False)
    size: int

    @classmethod
    def of(cls, result: KeptResult, chunks: Sequence[Chunk]) -> HeldResult:
        return cls(result, chunks, sum(chunk.size for chunk in chunks))

    def chunk(self, piece: int) -> Chunk | None:
        """The chunk that contains a piece."""
        at = bisect_right(self.chunks, piece, key=lambda chunk: chunk.first)
        return self.chunks[at - 1] if at else None


class WaitingResults:
    """Results that wait for the database; `write` raises a CatalogError if it does not take one."""

    def __init__(self, write: Callable[[HeldResult], Awaitable[None]], most_bytes: int) -> None:
        self._write = write
        self._most = most_bytes
        self._held: OrderedDict[str, HeldResult] = OrderedDict()
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._size = 0
        self._tasks = BackgroundTasks(logger, "Results that were cut are not written any more")
        self.lost = 0
        """Results for which there was no room."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def most_bytes(self) -> int:
        return self._most

    def find(self, result_id: str) -> HeldResult | None:
        return self._held.get(result_id)

    def add(self, held: HeldResult, begun: asyncio.Task[None] | None = None) -> bool:
        """Hold a result until it is written; False if it is too large. `begun`: an attempt that is not over."""
        if held.size > self._most:
            return False
        self._held[held.result.id] = held
        self._size += held.size
        if begun is not None:
            self._begun[held.result.id] = begun
        while self._size > self._most:
            self._drop(next(iter(self._held)))
            self.lost += 1
            logger.warning("There is no room for results that wait for the database; %d lost so far.", self.lost)
        if not self._tasks:
            self._tasks.spawn(self._write_all(), name="waiting results")
        return True

    async def stop(self, seconds: float) -> None:
        """Write what waits, if that is quick."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tasks.settled(), seconds)
        self._tasks.cancel()
        if self._held:
            logger.warning("%d results that were cut were not written: the database does not take them.", len(self))

    def _drop(self, result_id: str) -> None:
        self._size -= self._held.pop(result_id).size
        self._begun.pop(result_id, None)

    async def _write_all(self) -> None:
        pause = _FIRST_PAUSE
        said = False
        while self._held:
            held = next(iter(self._held.values()))
            try:
                await self._written(held)
            except CatalogError as error:
                if not said:
                    logger.warning("Results that were cut wait in memory for the database: %s.", error)
                said = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if self._held.get(held.result.id) is held:
                self._drop(held.result.id)
        if said:
            logger.warning("Results that waited for the database are written.")

    async def _written(self, held: HeldResult) -> None:
        begun = self._begun.pop(held.result.id, None)
        if begun is None:
            await self._write(held)
            return
        await asyncio.wait({begun})
        begun.result()
