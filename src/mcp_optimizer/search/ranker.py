"""Ranks a catalog for one request: features of every tool, a learned sum of them, where to cut, whether to answer.

Called by the engine and by the training, so that what was learned is what is served. Takes the cosines as given
and must not know which encoder made them; without any it ranks by words alone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex
from mcp_optimizer.search.tooltext import query_parts, split_words
from mcp_optimizer.search.words import name_key, terms, words

FEATURES: Final = (
    "cosine",  # of the whole query
    "part_cosine",  # the best over the query's parts; the whole query's where it has none
    "bm25_name",
    "bm25_server",
    "bm25_description",
    "bm25_parameters",
    "bm25_all",
    "bm25_part",  # bm25 over all words, the best over the query's parts
    "name_named",  # how much of the tool's name the query names
    "server_named",  # how much of the server's name the query names
    "query_met",  # how much of the query the tool's words have
    "name_phrase",  # the whole name, of two words or more, stands in the query
)
FIT_FEATURES: Final = (
    "best_cosine",  # part cosine of the first tool
    "whole_cosine",  # cosine of the first tool with the whole query
    "lead",  # how far the first score is above the tenth
    "first_met",  # how much of the query the first tool has
    "first_named",  # how much of the first tool's name the query names
)
EXACT_NAME_BONUS: Final = 1.0
"""Above any sum of the other features: who types a tool's name wants that tool."""

_LEAST: Final = 1e-6

_IDENTIFIER = re.compile(r"\b(?:[^\W_]+(?:[_-]+[^\W_]+)+|[a-z]+(?:[A-Z][a-z0-9]*)+)\b")

_BRAND = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]*)+\b")

_COLUMN: Final = {name: at for at, name in enumerate(FEATURES)}

Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Names:
    """The tools' names as a request may spell them."""

    spelt: tuple[str, ...]
    exact: Mapping[str, int]
    """By what all spellings of a name share: the first tool that is called so."""
    others: Mapping[str, tuple[int, ...]]
    """The same, for the further ones. Few names are shared: a collection for each would be most of the work."""

    @classmethod
    def of(cls, names: Sequence[tuple[str, str]]) -> Names:
        """From pairs of server and tool."""
        exact: dict[str, int] = {}
        others: defaultdict[str, set[int]] = defaultdict(set)
        for position, (server, name) in enumerate(names):
            for text in (name, f"{server} {name}"):
                for key in _exact_keys(text):
                    if key and exact.setdefault(key, position) != position:
                        others[key].add(position)
        spelt = tuple(split_words(name) for _, name in names)
        return cls(spelt, exact, {key: tuple(sorted(positions)) for key, positions in others.items()})

    def exactly(self, query: str) -> list[int]:
        """The tools that the query calls by name: it is the name, however joined or inflected, or contains it as
        an identifier. A plain word is none: "search" in a sentence does not mean the tool `search`."""
        keys = {*_exact_keys(query), *(name_key(word) for word in _IDENTIFIER.findall(query))}
        return sorted({position for key in keys for position in self._at(key)})

    def spelt_like(self, name: str) -> Sequence[int]:
        """The tools that have just the words of a name, however they are joined: createIssue for create_issue."""
        return self._at(name_key(name))

    def _at(self, key: str) -> Sequence[int]:
        first = self.exact.get(key)
        # A name without a single word is like nothing else.
        return () if first is None else (first, *self.others.get(key, ()))


def _exact_keys(text: str) -> tuple[str, str]:
    return name_key(text), "".join(terms(text))


@dataclass(frozen=True)
class Cosines:
    """What an encoder says of one query: one value a tool for the whole, and a row for each part."""

    whole: Floats
    parts: Floats


def feature_matrix(index: LexicalIndex, names: Names, query: str, cosines: Cosines | None) -> Floats:
    """Every tool's features (features x tools), in the order of `FEATURES`; without cosines theirs are zero."""
    asked, parts = asked_terms(index, query), query_parts(query)
    matrix = np.zeros((len(FEATURES), index.size), dtype=np.float32)
    if cosines is not None:
        matrix[_COLUMN["cosine"]] = cosines.whole
        matrix[_COLUMN["part_cosine"]] = cosines.parts.max(axis=0) if len(cosines.parts) else cosines.whole
    first = _COLUMN["bm25_name"]
    matrix[first : first + len(FIELDS)] = _scaled_rows(index.scores(asked))
    part = _COLUMN["bm25_part"]
    matrix[part] = matrix[_COLUMN["bm25_all"]]
    if parts:
        rows = [index.field_scores(terms(piece), "all") for piece in parts]
        matrix[part] = _scaled_rows(np.stack(rows)).max(axis=0)
    matrix[_COLUMN["name_named"]] = named = index.named(asked, "name")
    matrix[_COLUMN["server_named"]] = index.named(asked, "server")
    matrix[_COLUMN["query_met"]] = index.met(asked)
    matrix[_COLUMN["name_phrase"]] = _name_phrases(names, query, named)
    return matrix


def asked_terms(index: LexicalIndex, query: str) -> list[str]:
    """The terms of a query; a name like GitHub is split as an identifier is, but may also be known as one word."""
    joined = [term for name in _BRAND.findall(query) for term in terms(name.lower()) if index.knows(term)]
    return terms(query) + joined


def _scaled_rows(rows: Floats) -> Floats:
    """Each row divided by its best, so that fields and queries compare."""
    if not rows.size:
        return rows
    best = rows.max(axis=1, keepdims=True)
    best[best <= 0] = 1
    scaled: Floats = np.divide(rows, best, dtype=np.float32)
    return scaled


def _name_phrases(names: Names, query: str, name_named: Floats) -> Floats:
    """1 where a name of two words or more stands whole in the query; only fully named tools are looked at."""
    result = np.zeros(len(names.spelt), dtype=np.float32)
    text = f" {split_words(query)} "
    for position in np.flatnonzero(name_named > 0.99):
        name = names.spelt[position]
        if " " in name and f" {name} " in text:
            result[position] = 1.0
    return result


@dataclass(frozen=True)
class Regime:
    """Learned numbers for short or for long queries: what adds up, when to answer, where to cut."""

    weights: Floats
    fit_weights: Floats
    fit_bias: float
    fit_threshold: float
    gap: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Regime:
        """From `fusion.json`."""
        return cls(
            weights=np.array(stored["weights"], dtype=np.float32),
            fit_weights=np.array(stored["fit_weights"], dtype=np.float32),
            fit_bias=float(stored["fit_bias"]),
            fit_threshold=float(stored["fit_threshold"]),
            gap=float(stored["gap"]),
        )

    def stored(self) -> dict[str, Any]:
        """What `of` reads."""
        numbers = {name: getattr(self, name) for name in ("fit_bias", "fit_threshold", "gap")}
        return {"weights": self.weights.tolist(), "fit_weights": self.fit_weights.tolist(), **numbers}

    def fit(self, known: Floats) -> float:
        """How likely it is that the first tool answers, from 0 to 1."""
        return 1.0 / (1.0 + float(np.exp(-(known @ self.fit_weights + self.fit_bias))))


@dataclass(frozen=True)
class Fusion:
    """The numbers for one encoder."""

    short: Regime
    long: Regime

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Fusion:
        """From one encoder's entry of `fusion.json`; refuses numbers made for other features."""
        if tuple(stored["features"]) != FEATURES or tuple(stored["fit_features"]) != FIT_FEATURES:
            raise ValueError("fusion.json was made for other features than this version computes")
        return cls(Regime.of(stored["short"]), Regime.of(stored["long"]))

    def stored(self) -> dict[str, Any]:
        """What `of` reads."""
        regimes = {"short": self.short.stored(), "long": self.long.stored()}
        return {"features": list(FEATURES), "fit_features": list(FIT_FEATURES), **regimes}


def read_fusion(text: str, encoder: str) -> Fusion:
    """The numbers for `onnx`, `static` or `none` out of `fusion.json`."""
    return Fusion.of(json.loads(text)[encoder])


@dataclass(frozen=True)
class Ranking:
    """The best tools first, with their scores, and how likely it is that the first answers the query."""

    positions: Positions
    scores: Floats
    fit: float
    answered: bool
    """False: nothing fits, and nothing should be returned."""
    kept: int
    """How many of the first fit by their scores; at least one, if there are any."""
    known: Floats
    """The `FIT_FEATURES` behind `fit`."""


NOTHING = Ranking(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), 0.0, False, 0, np.zeros(0, dtype=np.float32)
)


def rank(
    index: LexicalIndex,
    names: Names,
    query: str,
    cosines: Cosines | None,
    fusion: Fusion,
    limit: int,
    allowed: Mask | None = None,
) -> Ranking:
    """The first `limit` of the allowed tools for the query. What is not allowed takes nobody's place."""
    eligible = np.arange(index.size) if allowed is None else np.flatnonzero(allowed)
    if not len(eligible) or limit < 1 or not words(query):
        # Without a single word, all that an encoder says is noise.
        return NOTHING
    regime = fusion.long if query_parts(query) else fusion.short
    matrix = feature_matrix(index, names, query, cosines)
    scores = regime.weights @ matrix
    exact = [position for position in names.exactly(query) if allowed is None or allowed[position]]
    scores[exact] += EXACT_NAME_BONUS
    order = _first(scores, eligible, max(limit, 10))
    known = fit_features(matrix, scores, order)
    fit = regime.fit(known)
    shown = order[:limit]
    # A tool that has nothing of the query fits in no case, however weak the first is.
    kept = int((scores[shown] >= max(scores[shown[0]] - regime.gap, _LEAST)).sum()) or 1
    return Ranking(shown, scores[shown], fit, bool(exact) or fit >= regime.fit_threshold, kept, known)


def contributions(
    index: LexicalIndex, names: Names, query: str, cosines: Cosines | None, fusion: Fusion, positions: Sequence[int]
) -> list[dict[str, float]]:
    """What each feature adds to the scores of these tools; they sum up to what `rank` gives them."""
    regime = fusion.long if query_parts(query) else fusion.short
    parts = regime.weights[:, None] * feature_matrix(index, names, query, cosines)[:, list(positions)]
    exact = set(names.exactly(query))
    return [
        {
            **{name: float(parts[row, column]) for row, name in enumerate(FEATURES)},
            "exact_name": EXACT_NAME_BONUS if position in exact else 0.0,
        }
        for column, position in enumerate(positions)
    ]


def _first(scores: Floats, eligible: Positions, count: int) -> Positions:
    """The best, ties to the earlier position, so that the same catalog always answers the same."""
    own = scores[eligible]
    if count < len(own):
        last = np.partition(own, len(own) - count)[len(own) - count]
        eligible = eligible[own >= last]
    ordered: Positions = eligible[np.lexsort((eligible, -scores[eligible]))][:count]
    return ordered


def fit_features(matrix: Floats, scores: Floats, order: Positions) -> Floats:
    """What tells a query that something answers from one that nothing does."""
    first, tenth = order[0], order[min(9, len(order) - 1)]
    return np.array(
        (
            matrix[_COLUMN["part_cosine"], first],
            matrix[_COLUMN["cosine"], first],
            scores[first] - scores[tenth],
            matrix[_COLUMN["query_met"], first],
            matrix[_COLUMN["name_named"], first],
        ),
        dtype=np.float32,
    )
