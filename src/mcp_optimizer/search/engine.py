"""Ranks tools for a request, over one immutable index.

The catalog builds an index in the background and swaps it in with one assignment; the gateway searches it. A search
never waits for ingestion and never sees half an index. With few tools, each part of an index is built when first
needed, so a gateway that is never searched does not load numpy. For requests that no special tool fits, general-purpose
tools (web search, code, files) are returned. Knows positions, not servers or callers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.deprecation import Superseded
from mcp_optimizer.search.languages import translated
from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex, TermCounts, Vector, Vocabulary
from mcp_optimizer.search.lexical import translated as renumbered
from mcp_optimizer.search.name_index import Names
from mcp_optimizer.search.ranker import (
    Cosines,
    Fusion,
    Mask,
    Positions,
    RankAdjustments,
    Ranking,
    contributions,
    rank,
    read_fusion,
    with_cosines,
    word_features,
)
from mcp_optimizer.search.tool_texts import keywords_read, query_parts, request_read
from mcp_optimizer.search.typing_errors import Grouped, grouped, repaired
from mcp_optimizer.search.vectors import VectorIndex
from mcp_optimizer.search.words import terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


class IndexParts:
    """The parts of one index. A part that two threads need at once may be built twice."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary | None, *, has_vectors: bool) -> None:
        """Without a vocabulary, this belongs to a confined index and has only the terms of its own tools."""
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
        """The vector of one tool, or None."""
        if self._entries:
            return self._entries[position].vector if self._has_vectors else None
        return self.vectors.row(position)

    def rows(self) -> Sequence[Vector | None]:
        """The vector of each tool, or None."""
        if self._entries:
            return [entry.vector if self._has_vectors else None for entry in self._entries]
        return self.vectors.rows(self._size)


KINDS: Final = {
    "search the web for any question and get current results": "web internet online google page",
    "fetch the content of a web page by its url": "url webpage website page web",
    "open a url in the browser": "browser",
    "run python code and return the output": "code python script cell sandbox",
    "run a shell command on the machine": "command shell bash terminal",
    "read the contents of a file": "file",
    "write text to a file": "file",
    "find files by name in a directory": "file directory folder",
    "run a sql query against the database": "sql",
    "remember a fact about the user for later": "memory remember knowledge note observation entity",
    "add what was learned about a person to the knowledge graph": "memory knowledge observation entity",
    "search stored memories and notes": "memory remember knowledge note entity",
    "solve an equation or evaluate a mathematical expression": "math equation expression calculate arithmetic",
}
"""Descriptions of general-purpose kinds of tools, each with words of which such a tool must contain at least one."""

MOST: Final = 3
"""Maximum general-purpose tools in one search result."""

LEAST_COSINE: Final = 0.1
"""Minimum cosine with the request for a general-purpose tool to be returned."""


@dataclass(frozen=True)
class Generality:
    """Each tool's highest cosine with a kind of general-purpose tool; zero for kinds whose words it lacks."""

    nearness: Floats

    @classmethod
    def of(cls, index: LexicalIndex, cosines: Callable[[list[str]], Floats]) -> Generality:
        """`cosines` returns texts x tools."""
        rows = cosines(list(KINDS))
        has_words = np.stack([index.field_scores(terms(asked), "all") > 0 for asked in KINDS.values()])
        return cls(np.where(has_words, rows, 0.0).max(axis=0).astype(np.float32))

    def tools(self, threshold: float) -> NDArray[np.bool_]:
        """Which tools are general-purpose."""
        near: NDArray[np.bool_] = self.nearness >= threshold
        return near


logger = logging.getLogger(__name__)

Prior = Callable[[Positions], Floats | None]
"""The usage prior of the tools at these positions; None if there is none."""

_CANDIDATES = 30
"""Number of first tools that the usage prior may move; the scores of later ones are too far below."""

_FURTHER = 8
"""Number of tools below the hits that a search reports."""

_WEAK = 0.3
"""If the likelihood of the first hit is below this, general-purpose tools are returned as well."""

_GUESS = 0.9
"""Maximum cosine guessed for a tool that is not embedded yet, relative to the highest cosine of embedded tools."""


class Encoder(Protocol):
    """Turns texts into unit vectors that are close if the texts have similar meanings."""

    @property
    def name(self) -> str:
        """Identifies the weights. Vectors are stored under this name and never mixed with those of another."""
        ...

    @property
    def fusion(self) -> str:
        """The entry of `fusion.json` with the weights learned for this encoder."""
        ...

    # All raise OSError if the encoder cannot be reached; the search then uses only words.

    def embed_tools(self, texts: Sequence[str]) -> Iterable[Vector]: ...

    def embed_queries(self, texts: Sequence[str]) -> Floats: ...

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        """Begin to embed, in another thread if the encoder has one; returns a function that waits for the vectors."""
        ...


@dataclass(frozen=True)
class Hit:
    """A tool, by its position in the index, and how likely it answers the request, from 0 to 1."""

    position: int
    score: float
    is_general: bool = False
    """Returned because it is general-purpose, not because it fits."""
    is_named: bool = False
    """The request names it."""


@dataclass(frozen=True)
class SearchResult:
    """The hits of a search; none if nothing fits. `fit` is how likely the first hit answers the request."""

    hits: tuple[Hit, ...]
    fit: float
    further: tuple[int, ...] = ()
    """The positions that follow in the ranking, whether they fit or not."""


@cache
def learned(encoder: str) -> Fusion:
    """The weights learned for an encoder; `none` is for words only."""
    stored = resources.files("mcp_optimizer") / "search" / "model" / "fusion.json"
    return read_fusion(stored.read_text(encoding="utf-8"), encoder)


def _hit(position: np.int64, likelihood: np.float32, named: Collection[int] = (), *, is_general: bool = False) -> Hit:
    return Hit(int(position), round(float(likelihood), 4), is_general, int(position) in named)


class SearchIndex:
    """Everything needed to rank one set of tools."""

    def __init__(
        self,
        entries: Sequence[Entry],
        vocabulary: Vocabulary | None,
        encoder: Encoder | None = None,
        whole: tuple[SearchIndex, Sequence[int]] | None = None,
    ) -> None:
        """Without a vocabulary, this is a confined index with some positions of the `whole` index."""
        self.size = len(entries)
        self._known_parts: WeakValueDictionary[tuple[int, ...], SearchIndex] = WeakValueDictionary()
        self._whole = whole
        has_vectors = encoder is not None and any(entry.vector is not None for entry in entries)
        self._encoder = encoder if has_vectors else None
        self._parts = IndexParts(entries, vocabulary, has_vectors=has_vectors)

    def confined(self, positions: Sequence[int], entries: Sequence[Entry]) -> SearchIndex:
        """An index of some of the tools, for callers that may not see the others: words of hidden tools affect neither
        the rarity of words nor the correction of requests. `entries` need no vectors. Built at its first search, and
        shared by callers that see the same tools.
        """
        key = tuple(positions)
        if (found := self._known_parts.get(key)) is None:
            seen = [replace(one, vector=self._parts.vector_at(at)) for at, one in zip(key, entries, strict=True)]
            found = self._known_parts[key] = SearchIndex(seen, None, self._encoder, (self, key))
        return found

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools whose name, with or without the server's, has exactly these words, however they are joined."""
        return self._parts.names.spelt_like(name)

    @property
    def by_words_only(self) -> bool:
        """Whether this index ranks without an encoder, because there is none or it is not ready yet."""
        return self._encoder is None

    @property
    def vectors(self) -> Sequence[Vector | None]:
        """The vector of each tool, or None."""
        return self._parts.rows()

    def search(
        self, description: str, keywords: str, allowed: Mask, limit: int, prior: Prior | None = None
    ) -> SearchResult:
        """The best of the allowed tools, up to the point where the scores show that nothing more fits.

        If nothing fits, or nothing fits well, general-purpose tools are returned too. `prior` is called for the first
        tools only.
        """
        query = self._repaired(f"{request_read(description)} {keywords_read(keywords)}".strip())
        begun = self._begin(query)
        # Computed while the encoder works in its own thread.
        matrix = word_features(self._parts.lexical, self._parts.names, query)
        cosines = self._cosines(query, begun)
        matrix = with_cosines(matrix, cosines)
        looked_at = limit + _FURTHER if limit > 0 else limit
        most = max(looked_at, _CANDIDATES) if prior and limit > 0 else looked_at
        ranking = self._ranked(query, cosines, allowed, most, None, matrix)
        if prior and (used := prior(ranking.positions)) is not None:
            whole = np.zeros(self.size, dtype=np.float32)
            whole[ranking.positions] = used
            ranking = self._ranked(query, cosines, allowed, looked_at, whole, matrix)
        fitting = zip(ranking.positions[: min(ranking.kept, limit)], ranking.likelihoods, strict=False)
        named = frozenset(self._parts.names.exactly(query))
        hits = [_hit(at, likelihood, named) for at, likelihood in fitting] if ranking.answered else []
        if cosines is not None and limit > 0 and (not hits or hits[0].score < _WEAK):
            found = {hit.position for hit in hits}
            general = [hit for hit in self._general(query, cosines, allowed, matrix) if hit.position not in found]
            hits = [*hits[: max(limit - len(general), 1)], *general][:limit] if general else hits
        found = {hit.position for hit in hits}
        following = (int(at) for at in ranking.positions[:looked_at] if int(at) not in found)
        return SearchResult(tuple(hits), hits[0].score if hits else 0.0, tuple(following) if hits else ())

    def ranking(self, query: str, allowed: Mask | None, limit: int, prior: Floats | None = None) -> Ranking:
        """The uncut ranking with the features behind it, for measuring and explaining."""
        query = self._repaired(request_read(query))
        return self._ranked(query, self._cosines(query, self._begin(query)), allowed, limit, prior)

    def contributions(
        self, query: str, positions: Sequence[int], allowed: Mask | None = None, prior: Floats | None = None
    ) -> list[dict[str, float]]:
        """Why these tools rank as they do for a query: what each feature adds to their scores."""
        query = self._repaired(request_read(query))
        cosines = self._cosines(query, self._begin(query))
        beside = RankAdjustments(self._parts.superseded, prior)
        fusion = self._fusion(cosines)
        return contributions(self._parts.lexical, self._parts.names, query, cosines, fusion, positions, allowed, beside)

    def _ranked(
        self,
        query: str,
        cosines: Cosines | None,
        allowed: Mask | None,
        limit: int,
        prior: Floats | None,
        matrix: Floats | None = None,
    ) -> Ranking:
        beside = RankAdjustments(self._parts.superseded, prior)
        fusion = self._fusion(cosines)
        found = rank(self._parts.lexical, self._parts.names, query, cosines, fusion, limit, allowed, beside, matrix)
        if found.answered or cosines is None or not self._parts.vectors.missing.any():
            return found
        # Nothing fits by meaning, but some tools are not embedded yet: words decide until they are.
        by_words = rank(self._parts.lexical, self._parts.names, query, None, learned("none"), limit, allowed, beside)
        return by_words if by_words.answered else found

    def _fusion(self, cosines: Cosines | None) -> Fusion:
        return learned(self._encoder.fusion if self._encoder and cosines else "none")

    def _repaired(self, query: str) -> str:
        """The request in English and without typing errors."""
        if (other := translated(query)) is not None:
            return other.read(query, self._parts.lexical.knows)
        return repaired(query, self._parts.lexical.knows, lambda: self._own_words)

    @lazy
    def _own_words(self) -> Grouped:
        return grouped(self._parts.lexical.known_terms())

    def _general(self, query: str, cosines: Cosines, allowed: Mask, matrix: Floats) -> list[Hit]:
        """The allowed general-purpose tools, nearest to the request first; empty if none is near."""
        generality = self.generality
        if generality is None:
            return []
        eligible = generality.tools(self._fusion(cosines).general) & allowed & (cosines.whole >= LEAST_COSINE)
        ranking = self._ranked(query, cosines, eligible, MOST, None, matrix)
        return [
            _hit(at, likelihood, is_general=True)
            for at, likelihood in zip(ranking.positions, ranking.likelihoods, strict=True)
        ]

    @lazy
    def generality(self) -> Generality | None:
        """Which tools are general-purpose; None if unknown."""
        if self._whole is not None:
            # A tool's generality does not depend on other tools, and computing it embeds a dozen texts.
            whole, positions = self._whole
            known = whole.generality
            return None if known is None else Generality(known.nearness[list(positions)])
        encoder = self._encoder
        if encoder is None:
            return None
        try:
            return Generality.of(
                self._parts.lexical, lambda texts: self._parts.vectors.cosines(encoder.embed_queries(texts))
            )
        except OSError as error:
            logger.warning("General-purpose tools could not be identified: %s.", error)
            return None

    def nearest_names(self, name: str, allowed: Mask, limit: int) -> list[Hit]:
        """Tools whose names share words with a name that does not exist."""
        scores = self._parts.lexical.field_scores(terms(name), FIELDS[0])
        scores[~allowed] = 0.0
        found = np.flatnonzero(scores)
        ordered = found[np.lexsort((found, -scores[found]))][:limit]
        return [Hit(int(at), round(float(scores[at]), 4)) for at in ordered]

    def _begin(self, query: str) -> Callable[[], Floats] | None:
        """Begin to embed a request and its parts; None without an encoder."""
        if self._encoder is None:
            return None
        return self._encoder.begin_queries([query, *query_parts(query)])

    def _cosines(self, query: str, begun: Callable[[], Floats] | None) -> Cosines | None:
        if begun is None:
            return None
        try:
            embedded = begun()
        except OSError as error:
            # The encoder's machine cannot be reached: a search by words is better than none.
            logger.warning("The request could not be embedded: %s. Searched by words only.", error)
            return None
        if not embedded[0].any():
            # The static table knows none of the words: only the lexical index can rank them.
            return None
        rows = self._parts.vectors.cosines(embedded)
        if self._parts.vectors.missing.any():
            rows = self._with_guesses(rows, query)
        return Cosines(rows[0], rows[1:])

    def _with_guesses(self, rows: Floats, query: str) -> Floats:
        """Guess the cosines of tools that are not embedded yet from their words, so they are still found."""
        words = self._parts.lexical.field_scores(terms(query), "all")
        relative = words / max(float(words.max(initial=0.0)), 1e-6)
        guessed = _GUESS * rows.max(axis=1, keepdims=True) * relative
        filled: Floats = np.where(self._parts.vectors.missing, guessed, rows)
        return filled
