"""What a search index consists of: words, the spellings and actions of names, successors of deprecated tools, and
vectors.

An index of a whole catalog has parts of its own; one of some of its tools shares those of the whole. With few tools,
each part is built when it is first needed. Used by the engine; knows no request.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import destroys, name_actions
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
from mcp_optimizer.search.tool_texts import split_words
from mcp_optimizer.search.vectors import VectorIndex, VectorPart
from mcp_optimizer.search.words import name_key, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Indexes the tool names of one index: the spellings that a request may use, and the actions that the names state.
# Built with the index; used by the ranker and the engine.

_IDENTIFIER = regex(r"\b(?:[^\W_]+(?:[_-]+[^\W_]+)+|[a-z]+(?:[A-Z][a-z0-9]*)+)\b")


def is_identifier(query: str) -> bool:
    """Whether a query contains an identifier (joined words) or is a single word."""
    return _IDENTIFIER.search(query) is not None or len(query.split()) == 1


class _Part:
    """The keys of some names, looked up among those of all."""

    def __init__(self, whole: Names, positions: Integers) -> None:
        self._whole = whole
        self._positions = positions

    def at(self, key: str) -> Sequence[int]:
        if not (everywhere := self._whole.spelt_as(key)):
            return ()
        return np.flatnonzero(np.isin(self._positions, everywhere)).tolist()


@dataclass(frozen=True)
class Names:
    """The tools' names in all spellings that a request may use."""

    spelt: tuple[str, ...]
    actions: NDArray[np.int32]
    """The action classes of each name, as a bit mask."""
    exact: Mapping[str, int]
    """The first tool of each name, by the key that all spellings of the name share."""
    destroying: NDArray[np.int64]
    """The positions of tools whose names say that they delete or overwrite."""
    others: Mapping[str, tuple[int, ...]]
    """The other tools of a shared name; separate, because few names are shared and need a collection."""
    servers: NDArray[np.int32]
    """The number of each tool's server."""
    server_names: tuple[str, ...]
    """The servers, by number."""
    of_whole: _Part | None = None
    """Set if these are some names of others, which then have the keys."""

    @classmethod
    def of(cls, names: Sequence[tuple[str, str]]) -> Names:
        """Make the names from pairs of server and tool name."""
        exact: dict[str, int] = {}
        others: defaultdict[str, set[int]] = defaultdict(set)
        for position, (server, name) in enumerate(names):
            for text in (name, f"{server} {name}"):
                for key in _exact_keys(text):
                    if key and exact.setdefault(key, position) != position:
                        others[key].add(position)
        spelt = tuple(split_words(name) for _, name in names)
        done = np.fromiter((name_actions(name.split()) for name in spelt), dtype=np.int32, count=len(spelt))
        destroying = np.fromiter((destroys(name.split()) for name in spelt), dtype=np.bool_, count=len(spelt))
        shared = {key: tuple(sorted(positions)) for key, positions in others.items()}
        numbers = {server: number for number, server in enumerate(dict.fromkeys(server for server, _ in names))}
        servers = np.fromiter((numbers[server] for server, _ in names), dtype=np.int32, count=len(spelt))
        return cls(spelt, done, exact, np.flatnonzero(destroying), shared, servers, tuple(numbers))

    def some(self, positions: Integers) -> Names:
        """The names of some tools, in ascending order, as if there were no others."""
        spelt = tuple(self.spelt[position] for position in positions)
        destroying = np.flatnonzero(np.isin(positions, self.destroying))
        among = _Part(self, positions)
        return Names(
            spelt, self.actions[positions], {}, destroying, {}, self.servers[positions], self.server_names, among
        )

    def exactly(self, query: str) -> list[int]:
        """The tools that the query names: the query is the name, however joined or inflected, or contains it as an
        identifier. A plain word does not count: "search" in a sentence does not mean the tool `search`."""
        keys = {*_exact_keys(query), *(name_key(word) for word in _IDENTIFIER.findall(query))}
        return sorted({position for key in keys for position in self.spelt_as(key)})

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools whose names have exactly these words, however they are joined: createIssue for create_issue."""
        return self.spelt_as(name_key(name))

    def spelt_as(self, key: str) -> Sequence[int]:
        """The tools with this key, in ascending order."""
        if self.of_whole is not None:
            return self.of_whole.at(key)
        first = self.exact.get(key)
        # No tool is stored under the empty key of a name without words.
        return () if first is None else (first, *self.others.get(key, ()))


def _exact_keys(text: str) -> tuple[str, str]:
    return name_key(text), "".join(terms(text))


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
