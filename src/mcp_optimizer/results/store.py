"""Keeps complete results for a while, each for the caller that made the call, so the rest of a cut result can be read.

Between the pipeline and the database: decides what is kept, for how long, and how much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_optimizer.domain.kept_results import Chunk, KeptResult
from mcp_optimizer.errors import CatalogError, InvalidRequest, quoted
from mcp_optimizer.results.pages import Pieces, unpacked

if TYPE_CHECKING:
    from mcp_optimizer.db.kept_results import KeptResults

logger = logging.getLogger(__name__)

_AT_ONCE = 4_000_000
_CHUNKS_AT_ONCE = 1_000
"""Bytes and chunks per transaction, because others wait for the file meanwhile."""


@dataclass(frozen=True)
class StoreLimits:
    """How long results are kept, and how many bytes of them, as stored."""

    hours: float = 24.0
    megabytes: int = 256


class ResultStore:
    """Complete results by id. `opened` returns the database once it is open."""

    def __init__(self, opened: Callable[[], Awaitable[KeptResults]], limits: StoreLimits | None = None) -> None:
        self._opened = opened
        self._limits = limits or StoreLimits()

    async def keep(self, result_id: str, caller: str, pieces: Pieces, max_tokens: int) -> bool:
        """Keep a result; False if the database refuses it."""
        result = KeptResult(result_id, caller, pieces.unit, pieces.count, max_tokens, pieces.size)
        try:
            kept = await self._opened()
            await kept.begin(result)
            stored = 0
            chunks = pieces.chunks()
            while some := await asyncio.to_thread(_some, chunks):
                await kept.add(result_id, some)
                stored += sum(chunk.size for chunk in some)
            await kept.finish(result, stored)
            await kept.forget(self._limits.hours * 3_600, self._limits.megabytes * 1_000_000)
        except CatalogError as error:
            logger.warning("Cannot keep a result that was cut: %s.", error)
            return False
        return True

    async def find(self, result_id: str, caller: str) -> KeptResult:
        """A result of this caller. A missing result and another caller's give the same error."""
        try:
            found = await (await self._opened()).find(result_id, caller)
        except CatalogError as error:
            raise InvalidRequest(f"Results cannot be read now: {error}. Call the tool again.") from error
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
        """Pieces from a number on, each with its block, as stored together; none after the last."""
        if first >= result.pieces:
            return first, []
        try:
            chunk = await (await self._opened()).chunk(result.id, first)
        except CatalogError as error:
            raise InvalidRequest(f"Results cannot be read now: {error}. Call the tool again.") from error
        if chunk is None or chunk.after <= first:
            return first, []
        pieces = await asyncio.to_thread(unpacked, chunk)
        return chunk.after, [(chunk.block, piece) for piece in pieces[first - chunk.first :]]


def _some(chunks: Iterator[Chunk]) -> list[Chunk]:
    some: list[Chunk] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += chunk.size
        if size >= _AT_ONCE or len(some) >= _CHUNKS_AT_ONCE:
            break
    return some
