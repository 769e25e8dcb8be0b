"""What an index is made of: words, names, vectors, and which tools are deprecated.

With few tools, each part is built when it is first needed: a gateway that nobody searches then does without numpy. With
many, everything is built at once, in the thread that makes the index, so that no search waits for it. Called by the
engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.search.deprecation import Superseded
from mcp_optimizer.search.lexical import LexicalIndex, TermCounts, Vector, Vocabulary, translated
from mcp_optimizer.search.names import Names
from mcp_optimizer.search.vectors import VectorIndex

_FEW = 1_000
"""Tools for which everything is built in some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index needs to know about a tool. `vector` is None until the tool is embedded."""

    server: str
    name: str
    counts: TermCounts
    vector: Vector | None = None
    successors: tuple[str, ...] | None = None
    """The name keys of the tools that a deprecated tool points to; None if it is not deprecated."""


class IndexParts:
    """The parts of one index. Parts that are needed by two threads at once may be built twice."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary | None, *, has_vectors: bool) -> None:
        """Without a vocabulary, this is part of another index, and has only the terms of its own tools."""
        self._entries = entries
        self._vocabulary = vocabulary
        self._has_vectors = has_vectors
        self._size = len(entries)
        if self._size > _FEW and vocabulary is not None:
            self._build()

    def _build(self) -> None:
        for part in (IndexParts.lexical, IndexParts.names, IndexParts.superseded, IndexParts.vectors):
            part.__get__(self)
        # They hold the vectors, which are in the matrix now.
        self._entries = ()

    @lazy
    def lexical(self) -> LexicalIndex:
        counts = [entry.counts for entry in self._entries]
        if self._vocabulary is None:
            vocabulary = Vocabulary()
            return LexicalIndex([translated(one, vocabulary) for one in counts], vocabulary)
        return LexicalIndex(counts, self._vocabulary)

    @lazy
    def names(self) -> Names:
        return Names.of([(entry.server, entry.name) for entry in self._entries])

    @lazy
    def superseded(self) -> Superseded:
        return Superseded.of([(entry.server, entry.name, entry.successors) for entry in self._entries])

    @lazy
    def vectors(self) -> VectorIndex:
        return VectorIndex([entry.vector for entry in self._entries] if self._has_vectors else [])

    def vector_at(self, position: int) -> Vector | None:
        """The vector of one tool, or None."""
        if self._entries:
            return self._entries[position].vector if self._has_vectors else None
        return self.vectors.row(position)

    def rows(self) -> Sequence[Vector | None]:
        """The vector of each tool, or None."""
        if self._entries:
            return [entry.vector if self._has_vectors else None for entry in self._entries]
        return self.vectors.rows(self._size)
