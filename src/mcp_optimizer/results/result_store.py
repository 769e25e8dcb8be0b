"""Keeps complete results for a while, each for the caller that made the call, so the rest of a cut result can be read.

Stands between the pipeline and the database: decides which results are kept, how many, and for how long. A call waits
about a second for the database; `WaitingResults` holds results in memory, bounded in bytes, until the database accepts
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mcp_optimizer.db.breaker import PATIENCE, Breaker
from mcp_optimizer.domain.kept_results import Chunk, KeptResult
from mcp_optimizer.errors import CatalogError, InvalidRequest, quoted
from mcp_optimizer.results.pages import REMARK, Pieces, unpacked
from mcp_optimizer.runtime.tasks import BackgroundTasks

if TYPE_CHECKING:
    from mcp_optimizer.db.kept_results import KeptResults

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
"""Seconds between two attempts to write."""


@dataclass(frozen=True, eq=False)
class HeldResult:
    """A complete result in memory, in the form in which it is stored."""

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
    """Results that wait for the database; `write` raises a CatalogError if the database does not accept one."""

    def __init__(self, write: Callable[[HeldResult], Awaitable[None]], most_bytes: int) -> None:
        self._write = write
        self._most = most_bytes
        self._held: OrderedDict[str, HeldResult] = OrderedDict()
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._size = 0
        self._tasks = BackgroundTasks(logger, "Results that were cut are not written any more")
        self.lost = 0
        """Number of results dropped for lack of room."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def most_bytes(self) -> int:
        return self._most

    def find(self, result_id: str) -> HeldResult | None:
        return self._held.get(result_id)

    def add(self, held: HeldResult, begun: asyncio.Task[None] | None = None) -> bool:
        """Hold a result until it is written; False if it is too large. `begun` is an unfinished attempt to write it."""
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
        """Write the waiting results, for at most so many seconds."""
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


T = TypeVar("T")


_AT_ONCE = 4_000_000
_CHUNKS_AT_ONCE = 1_000
"""Maximum bytes and chunks per transaction, because other writers wait for the database file meanwhile."""

_LOOKED_AT = 0.02
_LOOK_INTERVAL = 30.0
"""Old results are deleted after writing this share of the allowed bytes, or after this many seconds."""

_WAITING_BYTES = 64_000_000
_LAST_CHANCE = 2.0
"""Seconds for writing the waiting results when the gateway stops."""

Opened = Callable[[], Awaitable["KeptResults | None"]]
"""Waits until the database is open; None if it cannot be opened."""


@dataclass(frozen=True)
class StoreLimits:
    """How long results are kept, how many megabytes as stored, and how many bytes may wait for the database."""

    hours: float = 24.0
    megabytes: int = 256
    waiting_bytes: int = _WAITING_BYTES


class ResultStore:
    """Complete results by id, in the database or, until it accepts them, in memory."""

    def __init__(
        self,
        opened: Opened,
        limits: StoreLimits | None = None,
        breaker: Breaker | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._opened = opened
        self._limits = limits or StoreLimits()
        self._breaker = breaker or Breaker()
        self._patience = patience
        self._waiting = WaitingResults(self._write, self._limits.waiting_bytes)
        self._writing = BackgroundTasks(logger, "A result that was cut could not be written", (CatalogError,))
        self._forgetting = BackgroundTasks(logger, "Old results could not be deleted", (CatalogError,))
        self._written, self._looked_at = 0, float("-inf")
        """Bytes written since old results were last deleted, and when that was."""

    @property
    def waiting(self) -> int:
        """Results that the database does not have yet."""
        return len(self._waiting)

    async def keep(self, result_id: str, caller: str, pieces: Pieces, max_tokens: int) -> bool:
        """Keep a result; False if the database does not accept it and it is too large to wait in memory."""
        result = KeptResult(result_id, caller, pieces.unit, pieces.count, max_tokens, pieces.size)
        chunks = pieces.chunks()
        held = HeldResult.of(result, await asyncio.to_thread(_held, chunks, self._waiting.most_bytes))
        if held.size > self._waiting.most_bytes:
            return await self._kept_in_steps(held, chunks)
        if self._waiting or self._breaker.is_open:
            return self._waiting.add(held)
        task = self._writing.spawn(self._write(held))
        await asyncio.wait({task}, timeout=self._patience)
        if not task.done():
            return self._waiting.add(held, task)
        return task.exception() is None or self._waiting.add(held)

    async def find(self, result_id: str, caller: str) -> KeptResult:
        """Find a result of this caller. A missing result and another caller's result give the same error."""
        held = self._waiting.find(result_id)
        if held is not None:
            found = held.result if held.result.caller == caller else None
        else:
            found = await self._asked(lambda kept: kept.find(result_id, caller))
        if found is None:
            raise InvalidRequest(
                f"No result {quoted(result_id)} is kept. Results are kept for {self._limits.hours:g} hours, for "
                "the client that called the tool; call it again for a new one."
            )
        return found

    async def has(self, result_id: str, caller: str) -> bool:
        try:
            await self.find(result_id, caller)
        except InvalidRequest:
            return False
        return True

    async def pieces(self, result: KeptResult, first: int) -> tuple[int, list[tuple[int, bytes]]]:
        """The number after the last piece returned, and the pieces from `first` to the end of its chunk, each with its
        block; no pieces after the last.
        """
        if first >= result.pieces:
            return first, []
        held = self._waiting.find(result.id)
        if held is not None:
            chunk = held.chunk(first)
        else:
            chunk = await self._asked(lambda kept: kept.chunk(result.id, first))
        if chunk is None or chunk.after <= first:
            return first, []
        pieces = await asyncio.to_thread(unpacked, chunk)
        return chunk.after, [(chunk.block, piece) for piece in pieces[first - chunk.first :]]

    async def remark(self, result: KeptResult) -> str:
        """The remark for readers of a result; "" if there is none."""
        held = self._waiting.find(result.id)
        if held is not None:
            chunk = held.chunk(result.pieces)
        else:
            chunk = await self._asked(lambda kept: kept.chunk(result.id, result.pieces))
        return unpacked(chunk)[0].decode() if chunk is not None and chunk.block == REMARK else ""

    async def stop(self) -> None:
        """Write the waiting results, if that is quick, and stop."""
        await self._waiting.stop(_LAST_CHANCE)
        await self._forgetting.close()
        await self._writing.close()

    async def settled(self) -> None:
        """Wait until old results are deleted."""
        await self._forgetting.settled()

    async def _asked(self, ask: Callable[[KeptResults], Awaitable[T]]) -> T:
        async def work() -> T:
            return await ask(await self._database())

        try:
            return await self._breaker.within(work)
        except CatalogError as error:
            raise InvalidRequest(f"Results cannot be read now: {error}. Try again, or call the tool again.") from error

    async def _database(self) -> KeptResults:
        if (kept := await self._opened()) is None:
            raise CatalogError("the database is not open")
        return kept

    async def _write(self, held: HeldResult) -> None:
        kept = await self._database()
        if held.size <= _AT_ONCE:
            await kept.write(held.result, held.chunks)
        else:
            await kept.begin(held.result)
            chunks = iter(held.chunks)
            while some := _some(chunks):
                await kept.add(held.result.id, some)
            await kept.finish(held.result, held.size)
        self._forget_old(kept, held.size)

    async def _kept_in_steps(self, begun: HeldResult, rest: Iterator[Chunk]) -> bool:
        """Write a result that would not fit in memory; each step may take a second. False if the database fails,
        because there is nowhere else to keep it.
        """
        result, stored = begun.result, 0
        try:
            kept = await self._breaker.within(self._database)
            await self._breaker.within(lambda: kept.begin(result))
            first = iter(begun.chunks)
            while some := _some(first) or await asyncio.to_thread(_some, rest):
                await self._breaker.within(partial(kept.add, result.id, some))
                stored += sum(chunk.size for chunk in some)
            await self._breaker.within(lambda: kept.finish(result, stored))
        except CatalogError as error:
            logger.warning("Cannot keep a result that was cut: %s.", error)
            return False
        self._forget_old(kept, stored)
        return True

    def _forget_old(self, kept: KeptResults, written: int) -> None:
        """Start deleting old results in the background. Not after every write, because it examines all kept results."""
        limits, now = self._limits, time.monotonic()
        most = limits.megabytes * 1_000_000
        self._written += written
        if self._forgetting or (self._written < most * _LOOKED_AT and now - self._looked_at < _LOOK_INTERVAL):
            return
        self._written, self._looked_at = 0, now
        self._forgetting.spawn(kept.forget(limits.hours * 3_600, most))


def _held(chunks: Iterator[Chunk], most_bytes: int) -> list[Chunk]:
    """All chunks, or just over `most_bytes` of the first ones; the iterator keeps the rest."""
    held: list[Chunk] = []
    size = 0
    while size <= most_bytes and (some := _some(chunks)):
        held += some
        size += sum(chunk.size for chunk in some)
    return held


def _some(chunks: Iterator[Chunk]) -> list[Chunk]:
    some: list[Chunk] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += chunk.size
        if size >= _AT_ONCE or len(some) >= _CHUNKS_AT_ONCE:
            break
    return some


def new_result_id() -> str:
    """An id that cannot be guessed."""
    return f"r{secrets.token_hex(10)}"
