"""Ranks tools for a request, over one immutable index.

The catalog builds an index in the background and swaps it in with one assignment; the gateway searches it.
A query never waits for ingestion and never sees half of it. Knows positions, not servers or clients.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex, TermCounts, Vocabulary
from mcp_optimizer.search.words import name_key, terms

_FIELD_WEIGHTS = np.array([1.0, 0.3, 1.0, 0.2, 2.0], dtype=np.float32)
"""How much each of `FIELDS` says when it is all there is to go by; chosen on queries to real servers."""

_SIMILARITY_WEIGHT = 24.0
"""How much a cosine of 1 says beside them."""

_EXACT_NAME = 100.0
"""A tool whose very name was asked for comes first, whatever else matches."""

_IDENTIFIER = re.compile(r"[\w.\-/]+")

Mask = NDArray[np.bool_]


class Embedder(Protocol):
    """Turns texts into unit vectors that lie close when the texts mean alike."""

    @property
    def name(self) -> str:
        """Names the weights: vectors are stored under it and never mixed with another's."""
        ...

    def embed(self, texts: Sequence[str]) -> Floats: ...


@dataclass(frozen=True)
class Entry:
    """What the index needs to know of a tool. `vector` is None until it was embedded."""

    name: str
    counts: TermCounts
    vector: Floats | None = None


@dataclass(frozen=True)
class Hit:
    """A tool, by its position in the index, and how well it fits."""

    position: int
    score: float


class SearchIndex:
    """Everything needed to rank one set of tools."""

    def __init__(self, entries: Sequence[Entry], vocabulary: Vocabulary, embedder: Embedder | None = None) -> None:
        self._lexical = LexicalIndex([entry.counts for entry in entries], vocabulary)
        self._embedder = embedder
        self._vectors = _stack([entry.vector for entry in entries]) if embedder else None
        self._named: dict[str, list[int]] = defaultdict(list)
        for position, entry in enumerate(entries):
            self._named[name_key(entry.name)].append(position)

    def search(self, description: str, keywords: str, allowed: Mask, limit: int) -> list[Hit]:
        """The best tools among the allowed ones, best first. Only what matches in some way is returned."""
        scores = self._scores(description, keywords)
        # Before the cut: a tool that may not be returned must not take the place of one that may.
        scores[~allowed] = 0.0
        return _best(scores, limit)

    def nearest_names(self, name: str, allowed: Mask, limit: int) -> list[Hit]:
        """Tools whose names share words with a name that does not exist."""
        scores = self._lexical.scores(Counter(terms(name)))[:, FIELDS.index("name")].copy()
        scores[~allowed] = 0.0
        return _best(scores, limit)

    def _scores(self, description: str, keywords: str) -> Floats:
        scores = weigh_fields(self._lexical.scores(_query_terms(description, keywords)))
        if self._embedder is not None and self._vectors is not None:
            asked = self._embedder.embed([f"{description} {keywords}".strip()])[0]
            scores += _SIMILARITY_WEIGHT * np.maximum(self._vectors @ asked, 0.0)
        for position in self._exactly_named(description, keywords):
            scores[position] += _EXACT_NAME
        return scores

    def _exactly_named(self, description: str, keywords: str) -> set[int]:
        """Tools that the request calls by name: as the whole of it, or as an identifier within it."""
        asked = {name_key(description), name_key(keywords)}
        for identifier in _IDENTIFIER.findall(f"{description} {keywords}"):
            # A plain word is no identifier: "search" in a sentence does not mean the tool `search`.
            if "_" in identifier or "-" in identifier or any(letter.isupper() for letter in identifier[1:]):
                asked.add(name_key(identifier.strip(".-/")))
        return {position for key in asked if key for position in self._named.get(key, ())}


def weigh_fields(scores: Floats) -> Floats:
    """One number a tool: each field relative to the best tool in it, then weighted."""
    if not scores.size:
        return np.zeros(scores.shape[0], dtype=np.float32)
    relative = scores / np.maximum(scores.max(axis=0), 1e-6)
    weighed: Floats = relative @ _FIELD_WEIGHTS
    return weighed


def _query_terms(description: str, keywords: str) -> Mapping[str, float]:
    return Counter(terms(f"{description} {keywords}"))


def _best(scores: Floats, limit: int) -> list[Hit]:
    limit = min(limit, len(scores))
    if limit <= 0:
        return []
    # Everything that ties with the last place is sorted too: ties go to the earlier position, so that the
    # same catalog always answers the same.
    last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    candidates = np.flatnonzero(scores >= max(last, np.finfo(np.float32).tiny))
    ordered = candidates[np.lexsort((candidates, -scores[candidates]))][:limit]
    return [Hit(int(position), round(float(scores[position]), 4)) for position in ordered]


def _stack(vectors: Sequence[Floats | None]) -> Floats | None:
    """One matrix; a tool that is not embedded yet gets zeros and is found by its words alone."""
    size = next((len(vector) for vector in vectors if vector is not None), 0)
    if not size:
        return None
    nothing = np.zeros(size, dtype=np.float32)
    return np.stack([nothing if vector is None else vector for vector in vectors])
