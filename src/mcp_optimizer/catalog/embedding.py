"""Makes tools findable by meaning: embeds them in the background, one server at a time.

Until then they are found by their words. Called by the live catalog; makes no index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.record import ToolRecord
from mcp_optimizer.catalog.vectors import KnownVectors
from mcp_optimizer.search.engine import Encoder, SearchIndex

logger = logging.getLogger(__name__)


class Embedding:
    """The encoder, once loaded, and the vectors it made. Calls `on_found` when there are more."""

    def __init__(self, ingestion: Ingestion, on_found: Callable[[], None]) -> None:
        self._ingestion = ingestion
        self._on_found = on_found
        self._is_closing = False
        self._is_loading = False
        self._waiting = 0
        # One server at a time: a dozen that start together must not take all processors.
        self._turn = asyncio.Lock()
        self.encoder: Encoder | None = None
        self.vectors = KnownVectors()

    @property
    def is_last(self) -> bool:
        """Whether no other server waits to be embedded."""
        return not self._waiting

    def expect(self) -> None:
        """The encoder is being loaded."""
        self._is_loading = True

    def is_preparing(self, index: SearchIndex) -> bool:
        """Whether search will soon use meaning but does not yet: the encoder is loading, or has embedded nothing."""
        waits_for_vectors = self.encoder is not None and index.size > 0 and index.by_words_only
        return self._is_loading or waits_for_vectors

    def use(self, encoder: Encoder | None) -> None:
        """Set the encoder. Vectors of different encoders cannot be compared."""
        self.encoder, self.vectors = encoder, KnownVectors()
        self._is_loading = False

    def close(self) -> None:
        """Stop; the remaining tools are embedded at the next start."""
        self._is_closing = True

    async def store(self) -> None:
        """Write all vectors again."""
        if self.encoder is not None:
            await self._ingestion.store_vectors(self.vectors.at_hand(), self.encoder)

    async def embed(self, records: Sequence[ToolRecord]) -> None:
        encoder = self.encoder
        if encoder is None:
            return
        self._waiting += 1
        async with self._turn:
            self._waiting -= 1
            await self._embed_unknown(records, encoder, self.vectors)

    async def _embed_unknown(self, records: Sequence[ToolRecord], encoder: Encoder, vectors: KnownVectors) -> None:
        unknown = [record for record in records if record.vector_key not in vectors]
        if not unknown or not self._goes_on_with(encoder):
            return
        try:
            async for found in self._ingestion.embed(unknown, encoder):
                vectors.add(found)
                self._on_found()
                if not self._goes_on_with(encoder):
                    return
        except OSError as error:
            logger.warning("Tools of %s are found by their words only: %s", records[0].server, error)

    def _goes_on_with(self, encoder: Encoder) -> bool:
        return encoder is self.encoder and not self._is_closing
