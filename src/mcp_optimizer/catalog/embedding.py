"""Makes tools findable by meaning: embeds them in the background, one server at a time, and keeps their vectors.

Until then, tools are found by their words. A vector is kept as long as a server lists its tool: most vectors are rows
of the index's matrix, newer ones are held separately. Called by the live catalog on the event loop; the mapping that
`at_hand` returns may be read in a thread. Does not build the index.
"""

from __future__ import annotations

import asyncio
import logging
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence

from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.tools import ToolRecord
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.lexical import Vector


class KnownVectors:
    """The vectors of listed tools, by key."""

    def __init__(self) -> None:
        self._indexed: dict[str, Vector] = {}
        self._new: dict[str, Vector] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._new or key in self._indexed

    def __len__(self) -> int:
        return len(self._new.keys() | self._indexed.keys())

    def add(self, found: Mapping[str, Vector]) -> None:
        self._new.update(found)

    def at_hand(self) -> Mapping[str, Vector]:
        """All vectors known now; later additions do not change the mapping."""
        return ChainMap(dict(self._new), self._indexed)

    def settle(self, indexed: dict[str, Vector], at_hand: Mapping[str, Vector], since: Iterable[ToolRecord]) -> None:
        """Take over the vectors of an index built from `at_hand`; `since` are records that the index lacks.

        Drops vectors of tools that no server lists any more: each would keep the complete matrix of an old index alive.
        """
        # Without an encoder there are no vectors; searching very many tools for them would delay the event loop.
        listed = {record.vector_key for record in since} - indexed.keys() if self._new or self._indexed else ()
        kept = {key: found for key in listed if (found := self._find(key)) is not None}
        kept |= {key: found for key, found in self._new.items() if key not in at_hand and key not in indexed}
        self._indexed, self._new = indexed, kept

    def _find(self, key: str) -> Vector | None:
        found = self._new.get(key)
        return self._indexed.get(key) if found is None else found


def vectors_in(vectors: Sequence[Vector | None], records: Sequence[ToolRecord]) -> dict[str, Vector]:
    """The rows of an index's matrix by key; as views of the matrix they take no extra memory."""
    return {record.vector_key: vector for record, vector in zip(records, vectors, strict=True) if vector is not None}


logger = logging.getLogger(__name__)


class Embedding:
    """The encoder, once loaded, and the vectors it made. Calls `on_found` when vectors were added."""

    def __init__(self, ingestion: Ingestion, on_found: Callable[[], None]) -> None:
        self._ingestion = ingestion
        self._on_found = on_found
        self._is_closing = False
        self._is_loading = False
        self._waiting = 0
        # One server at a time: a dozen servers that start together must not take all processors.
        self._turn = asyncio.Lock()
        self.encoder: Encoder | None = None
        self.vectors = KnownVectors()

    @property
    def is_last(self) -> bool:
        """Whether no other server waits to be embedded."""
        return not self._waiting

    def expect(self) -> None:
        """Note that an encoder is being loaded."""
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
        """Write all vectors to the database again."""
        if self.encoder is not None:
            await self._ingestion.store_vectors(self.vectors.at_hand(), self.encoder)

    async def recall(self, records: Sequence[ToolRecord]) -> None:
        """Take the stored vectors of these tools; embeds none."""
        encoder, vectors = self.encoder, self.vectors
        unknown = [record.vector_key for record in records if record.vector_key not in vectors]
        if encoder is None or not unknown:
            return
        if found := await self._ingestion.known_vectors(unknown, encoder):
            vectors.add(found)
            self._on_found()

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
