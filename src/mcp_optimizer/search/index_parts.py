"""What a search index consists of: words, names, successors of deprecated tools, and vectors.

An index of a whole catalog has parts of its own; one of some of its tools shares those of the whole. With few tools,
each part is built when it is first needed. Used by the engine; knows no request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.deprecation import Superseded
from mcp_optimizer.search.lexical import (
    Integers,
    LexicalIndex,
    LexicalPart,
    TermCounts,
    Vector,
    Vocabulary,
    WordIndex,
)
from mcp_optimizer.search.lexical import translated as renumbered
from mcp_optimizer.search.name_index import Names
from mcp_optimizer.search.vectors import VectorIndex, VectorPart

_FEW = 1_000
"""Maximum tools for which the parts are built on demand, which takes some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The data of a tool that the index needs. `vector` is None until the tool is embedded."""

    server: str
    name: str
    counts: TermCounts
    vector: Vector | None = None
    successors: tuple[str, ...] | None = None
    """The name keys of the tools that a deprecated tool points to; None if it is not deprecated."""


class PartsOfIndex(Protocol):
    """What an index consists of. A part that two threads need at once may be built twice."""

    @property
    def lexical(self) -> WordIndex: ...
    @property
    def names(self) -> Names: ...
    @property
    def superseded(self) -> Superseded: ...
    @property
    def vectors(self) -> VectorIndex | VectorPart: ...
    def vector_at(self, position: int) -> Vector | None:
        """The vector of one tool, or None."""

    def rows(self) -> Sequence[Vector | None]:
        """The vector of each tool, or None."""


class IndexParts:
    """The parts of an index of its own."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary | None, *, has_vectors: bool) -> None:
        """Without a vocabulary, this belongs to a large confined index and has only the terms of its own tools."""
        self._entries = entries
        self._vocabulary = vocabulary
        self._has_vectors = has_vectors
        self._size = len(entries)
        if self._size > _FEW and vocabulary is not None:
            self._build()

    def _build(self) -> None:
        for part in (IndexParts.lexical, IndexParts.names, IndexParts.superseded, IndexParts.vectors):
            part.__get__(self)
        # The entries hold vectors that are now in the matrix too.
        self._entries = ()

    @lazy
    def lexical(self) -> LexicalIndex:
        counts = [entry.counts for entry in self._entries]
        if self._vocabulary is None:
            vocabulary = Vocabulary()
            return LexicalIndex([renumbered(one, vocabulary) for one in counts], vocabulary)
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
        if self._entries:
            return self._entries[position].vector if self._has_vectors else None
        return self.vectors.row(position)

    def rows(self) -> Sequence[Vector | None]:
        if self._entries:
            return [entry.vector if self._has_vectors else None for entry in self._entries]
        return self.vectors.rows(self._size)


class SomeParts:
    """The parts that an index of some tools of another would have. They share words, names and vectors with it, and
    hold a few numbers for each tool.
    """

    def __init__(self, whole: IndexParts, positions: array[int]) -> None:
        self._whole = whole
        self._at = positions

    @lazy
    def _positions(self) -> Integers:
        return np.frombuffer(self._at, dtype=np.int32)

    @lazy
    def lexical(self) -> LexicalPart:
        return self._whole.lexical.some(self._positions)

    @lazy
    def names(self) -> Names:
        return self._whole.names.some(self._positions)

    @lazy
    def superseded(self) -> Superseded:
        return self._whole.superseded.some(self._positions)

    @lazy
    def vectors(self) -> VectorPart:
        return self._whole.vectors.some(self._positions)

    def vector_at(self, position: int) -> Vector | None:
        return self._whole.vector_at(self._at[position])

    def rows(self) -> Sequence[Vector | None]:
        return [self.vector_at(position) for position in range(len(self._at))]


class PartsInPlace:
    """The parts of another index, in which only some tools have words; the others must not be allowed in a search."""

    def __init__(self, whole: IndexParts, positions: array[int]) -> None:
        self._whole = whole
        self._at = positions

    @lazy
    def lexical(self) -> LexicalPart:
        return self._whole.lexical.some(np.frombuffer(self._at, dtype=np.int32), in_place=True)

    @property
    def names(self) -> Names:
        return self._whole.names

    @property
    def superseded(self) -> Superseded:
        return self._whole.superseded

    @property
    def vectors(self) -> VectorIndex:
        return self._whole.vectors

    def vector_at(self, position: int) -> Vector | None:
        return self._whole.vector_at(position)

    def rows(self) -> Sequence[Vector | None]:
        return self._whole.rows()
