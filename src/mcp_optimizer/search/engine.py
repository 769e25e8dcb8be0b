"""Ranks tools for a request, over one immutable index.

The catalog builds an index in the background and swaps it in with one assignment; the gateway searches it.
A query never waits for ingestion and never sees half of it. Knows positions, not servers or clients.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Protocol

import numpy as np

from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex, TermCounts, Vocabulary
from mcp_optimizer.search.ranker import Cosines, Fusion, Mask, Names, Ranking, contributions, rank, read_fusion
from mcp_optimizer.search.tooltext import query_parts
from mcp_optimizer.search.vectors import VectorIndex
from mcp_optimizer.search.words import terms

logger = logging.getLogger(__name__)

_GUESS = 0.9
"""How near a tool that is not embedded yet may come, against the nearest that is."""


class Encoder(Protocol):
    """Turns texts into unit vectors that lie close when the texts mean alike."""

    @property
    def name(self) -> str:
        """Names the weights: vectors are stored under it and never mixed with another's."""
        ...

    @property
    def fusion(self) -> str:
        """Which learned numbers of `fusion.json` go with it."""
        ...

    # Both raise an OSError where it is out of reach: search then goes by words.

    def embed_tools(self, texts: Sequence[str]) -> Floats: ...

    def embed_queries(self, texts: Sequence[str]) -> Floats: ...


@dataclass(frozen=True)
class Entry:
    """What the index needs to know of a tool. `vector` is None until it was embedded."""

    server: str
    name: str
    counts: TermCounts
    vector: Floats | None = None


@dataclass(frozen=True)
class Hit:
    """A tool, by its position in the index, and how well it fits."""

    position: int
    score: float


@dataclass(frozen=True)
class SearchResult:
    """What a search found: nothing, if nothing fits. `fit` is how likely it is that the first hit answers."""

    hits: tuple[Hit, ...]
    fit: float


@cache
def learned(encoder: str) -> Fusion:
    """The learned numbers that go with an encoder; `none` for words alone."""
    stored = resources.files("mcp_optimizer") / "search" / "model" / "fusion.json"
    return read_fusion(stored.read_text(encoding="utf-8"), encoder)


class SearchIndex:
    """Everything needed to rank one set of tools."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary, encoder: Encoder | None = None) -> None:
        self._lexical = LexicalIndex([entry.counts for entry in entries], vocabulary)
        self._names = Names.of([(entry.server, entry.name) for entry in entries])
        self._vectors = VectorIndex([entry.vector for entry in entries] if encoder else [])
        self._encoder = None if self._vectors.is_empty else encoder

    @property
    def size(self) -> int:
        return self._lexical.size

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools whose name, with or without their server's, has just these words, however they are joined."""
        return self._names.spelt_like(name)

    @property
    def by_words_only(self) -> bool:
        """Whether this index ranks without an encoder: there is none, or it is not ready yet."""
        return self._encoder is None

    @property
    def vectors(self) -> Sequence[Floats | None]:
        """The vector of each tool, where it has one."""
        return self._vectors.rows(self._lexical.size)

    def search(self, description: str, keywords: str, allowed: Mask, limit: int) -> SearchResult:
        """The best of the allowed tools, cut where the scores say that nothing more fits."""
        ranking = self.ranking(f"{description} {keywords}".strip(), allowed, limit)
        if not ranking.answered:
            return SearchResult((), ranking.fit)
        hits = zip(ranking.positions[: ranking.kept], ranking.scores, strict=False)
        return SearchResult(tuple(Hit(int(at), round(float(score), 4)) for at, score in hits), ranking.fit)

    def ranking(self, query: str, allowed: Mask | None, limit: int) -> Ranking:
        """The whole ranking, uncut, with what led to it; for those who measure or explain."""
        cosines = self._cosines(query)
        fusion = learned(self._encoder.fusion if self._encoder and cosines else "none")
        return rank(self._lexical, self._names, query, cosines, fusion, limit, allowed)

    def contributions(self, query: str, positions: Sequence[int]) -> list[dict[str, float]]:
        """Why these tools have their scores for a query: what each feature adds."""
        cosines = self._cosines(query)
        fusion = learned(self._encoder.fusion if self._encoder and cosines else "none")
        return contributions(self._lexical, self._names, query, cosines, fusion, positions)

    def nearest_names(self, name: str, allowed: Mask, limit: int) -> list[Hit]:
        """Tools whose names share words with a name that does not exist."""
        scores = self._lexical.field_scores(terms(name), FIELDS[0])
        scores[~allowed] = 0.0
        found = np.flatnonzero(scores)
        ordered = found[np.lexsort((found, -scores[found]))][:limit]
        return [Hit(int(at), round(float(scores[at]), 4)) for at in ordered]

    def _cosines(self, query: str) -> Cosines | None:
        if self._encoder is None:
            return None
        try:
            embedded = self._encoder.embed_queries([query, *query_parts(query)])
        except OSError as error:
            # It is on another machine, and that one is down: words are better than no answer.
            logger.warning("The request could not be embedded: %s. Searched by words only.", error)
            return None
        rows = self._vectors.cosines(embedded)
        if self._vectors.missing.any():
            rows = self._with_guesses(rows, query)
        return Cosines(rows[0], rows[1:])

    def _with_guesses(self, rows: Floats, query: str) -> Floats:
        """A tool that is not embedded yet is as near as its words are: it must not vanish until it is."""
        words = self._lexical.field_scores(terms(query), "all")
        relative = words / max(float(words.max(initial=0.0)), 1e-6)
        guessed = _GUESS * rows.max(axis=1, keepdims=True) * relative
        filled: Floats = np.where(self._vectors.missing, guessed, rows)
        return filled
