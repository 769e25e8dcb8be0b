"""Ranks tools for a request, over one immutable index.

The catalog builds an index in the background and swaps it in with one assignment; the gateway searches it.
A query never waits for ingestion and never sees half of it. Knows positions, not servers or clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Protocol

import numpy as np

from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.search.deprecation import Superseded
from mcp_optimizer.search.general import LEAST_COSINE, MOST, Generality
from mcp_optimizer.search.learned import Fusion, read_fusion
from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex, TermCounts, Vocabulary
from mcp_optimizer.search.ranker import Beside, Cosines, Mask, Names, Positions, Ranking, contributions, rank
from mcp_optimizer.search.spelling import Grouped, grouped, repaired
from mcp_optimizer.search.tooltext import query_parts
from mcp_optimizer.search.vectors import VectorIndex
from mcp_optimizer.search.words import terms

logger = logging.getLogger(__name__)

Prior = Callable[[Positions], Floats | None]
"""What use says of the tools at these positions; None: nothing."""

_CANDIDATES = 30
"""Tools that use may move: one further down is no near equal of the first."""

_WEAK = 0.3
"""How likely the first hit must be to answer for general-purpose tools not to be offered beside it."""

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
    successors: tuple[str, ...] | None = None
    """The names that a deprecated tool points to; None: it is not deprecated."""


@dataclass(frozen=True)
class Hit:
    """A tool, by its position in the index, and how likely it is to answer, from 0 to 1."""

    position: int
    score: float
    is_general: bool = False
    """It is there because it is for anything, not because it fits."""


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


def _hit(position: np.int64, likelihood: np.float32, *, is_general: bool = False) -> Hit:
    return Hit(int(position), round(float(likelihood), 4), is_general)


class SearchIndex:
    """Everything needed to rank one set of tools."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary, encoder: Encoder | None = None) -> None:
        self._lexical = LexicalIndex([entry.counts for entry in entries], vocabulary)
        self._names = Names.of([(entry.server, entry.name) for entry in entries])
        self._superseded = Superseded.of([(entry.server, entry.name, entry.successors) for entry in entries])
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

    def search(
        self, description: str, keywords: str, allowed: Mask, limit: int, prior: Prior | None = None
    ) -> SearchResult:
        """The best of the allowed tools, cut where the scores say that nothing more fits.

        Where nothing fits, or hardly, the tools that are for anything. `prior`: what use says of the likeliest.
        """
        query = self._repaired(f"{description} {keywords}".strip())
        cosines = self._cosines(query)
        ranking = self._ranked(query, cosines, allowed, max(limit, _CANDIDATES) if prior and limit > 0 else limit, None)
        if prior and (used := prior(ranking.positions)) is not None:
            whole = np.zeros(self._lexical.size, dtype=np.float32)
            whole[ranking.positions] = used
            ranking = self._ranked(query, cosines, allowed, limit, whole)
        fitting = zip(ranking.positions[: min(ranking.kept, limit)], ranking.likelihoods, strict=False)
        hits = [_hit(at, likelihood) for at, likelihood in fitting] if ranking.answered else []
        if cosines is not None and limit > 0 and (not hits or hits[0].score < _WEAK):
            found = {hit.position for hit in hits}
            general = [hit for hit in self._general(query, cosines, allowed) if hit.position not in found]
            hits = [*hits[: max(limit - len(general), 1)], *general][:limit] if general else hits
        return SearchResult(tuple(hits), hits[0].score if hits else 0.0)

    def ranking(self, query: str, allowed: Mask | None, limit: int, prior: Floats | None = None) -> Ranking:
        """The whole ranking, uncut, with what led to it; for those who measure or explain."""
        query = self._repaired(query)
        return self._ranked(query, self._cosines(query), allowed, limit, prior)

    def contributions(
        self, query: str, positions: Sequence[int], allowed: Mask | None = None, prior: Floats | None = None
    ) -> list[dict[str, float]]:
        """Why these tools have their ranks for a query: what each feature adds."""
        query = self._repaired(query)
        cosines = self._cosines(query)
        beside = Beside(self._superseded, prior)
        fusion = self._fusion(cosines)
        return contributions(self._lexical, self._names, query, cosines, fusion, positions, allowed, beside)

    def _ranked(
        self, query: str, cosines: Cosines | None, allowed: Mask | None, limit: int, prior: Floats | None
    ) -> Ranking:
        beside = Beside(self._superseded, prior)
        found = rank(self._lexical, self._names, query, cosines, self._fusion(cosines), limit, allowed, beside)
        if found.answered or cosines is None or not self._vectors.missing.any():
            return found
        # Nothing fits by meaning, but not every tool's is known yet: its words decide until it is.
        by_words = rank(self._lexical, self._names, query, None, learned("none"), limit, allowed, beside)
        return by_words if by_words.answered else found

    def _fusion(self, cosines: Cosines | None) -> Fusion:
        return learned(self._encoder.fusion if self._encoder and cosines else "none")

    def _repaired(self, query: str) -> str:
        return repaired(query, self._lexical.knows, lambda: self._own_words)

    @lazy
    def _own_words(self) -> Grouped:
        return grouped(self._lexical.known_terms())

    def _general(self, query: str, cosines: Cosines, allowed: Mask) -> list[Hit]:
        """The allowed tools that are for anything, the nearest to the request first; none where none is near."""
        generality = self._generality
        if generality is None:
            return []
        eligible = generality.tools(self._fusion(cosines).general) & allowed & (cosines.whole >= LEAST_COSINE)
        ranking = self._ranked(query, cosines, eligible, MOST, None)
        return [
            _hit(at, likelihood, is_general=True)
            for at, likelihood in zip(ranking.positions, ranking.likelihoods, strict=True)
        ]

    @lazy
    def _generality(self) -> Generality | None:
        encoder = self._encoder
        if encoder is None:
            return None
        try:
            return Generality.of(self._lexical, lambda texts: self._vectors.cosines(encoder.embed_queries(texts)))
        except OSError as error:
            logger.warning("General-purpose tools could not be told apart: %s.", error)
            return None

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
        if not embedded[0].any():
            # A static table knows none of its words: their spelling is all there is.
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
