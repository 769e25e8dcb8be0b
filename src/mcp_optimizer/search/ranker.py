"""Ranks a catalog for one request: features of every tool, a learned sum of them, where to cut, whether to answer.

Called by the engine and by the training, so that what was learned is what is served. Takes the cosines as given
and must not know which encoder made them; without any it ranks by words alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.actions import actions, name_actions, negated
from mcp_optimizer.search.deprecation import NONE_SUPERSEDED, Superseded
from mcp_optimizer.search.learned import FEATURES, Fusion, Regime
from mcp_optimizer.search.lexical import FIELDS, Floats, LexicalIndex
from mcp_optimizer.search.tooltext import query_parts, split_words
from mcp_optimizer.search.words import name_key, terms, words

EXACT_NAME_BONUS: Final = 1.0
"""Above any sum of the other features: who types a tool's name wants that tool."""

_CALLED_BY_NAME: Final = 0.99
"""How likely a tool is meant that the request calls by its name."""

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
    actions: NDArray[np.int32]
    """What each name says the tool does, as bits."""
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
        done = np.fromiter((name_actions(name.split()) for name in spelt), dtype=np.int32, count=len(spelt))
        return cls(spelt, done, exact, {key: tuple(sorted(positions)) for key, positions in others.items()})

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
    unwanted = negated(query)
    if wanted := actions([word for word in words(query) if word not in unwanted]):
        shared = (names.actions & wanted) > 0
        matrix[_COLUMN["same_action"]] = shared
        matrix[_COLUMN["other_action"]] = -((names.actions > 0) & ~shared).astype(np.float32)
    for word in unwanted:
        matrix[_COLUMN["negation"]] += index.named(terms(f"un{word}"), "name") > 0
        matrix[_COLUMN["negation"]] -= index.named(terms(word), "name") > 0
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
    hits: Floats
    """The `HIT_FEATURES` of each, behind `likelihoods`."""
    likelihoods: Floats
    """How likely each is to answer the query, from 0 to 1, falling."""


_NO_NUMBERS: Final = np.zeros(0, dtype=np.float32)
NOTHING = Ranking(np.zeros(0, dtype=np.int64), _NO_NUMBERS, 0.0, False, 0, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)


@dataclass(frozen=True)
class Beside:
    """What moves ranks beside the request: which tools are deprecated, and what was called after such requests."""

    superseded: Superseded = NONE_SUPERSEDED
    prior: Floats | None = None
    """Small and capped by whoever learned it."""


NOTHING_BESIDE: Final = Beside()


def rank(
    index: LexicalIndex,
    names: Names,
    query: str,
    cosines: Cosines | None,
    fusion: Fusion,
    limit: int,
    allowed: Mask | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> Ranking:
    """The first `limit` of the allowed tools for the query. What is not allowed takes nobody's place."""
    eligible = np.arange(index.size) if allowed is None else np.flatnonzero(allowed)
    if not len(eligible) or limit < 1 or not words(query):
        # Without a single word, all that an encoder says is noise.
        return NOTHING
    regime = fusion.long if query_parts(query) else fusion.short
    matrix = feature_matrix(index, names, query, cosines)
    exact = [position for position in names.exactly(query) if allowed is None or allowed[position]]
    scores = _scores(matrix, regime, exact, allowed, beside)
    order = _first(scores, eligible, max(limit, 10) + 1)
    known = fit_features(matrix, scores, order)
    fit, shown = regime.fit(known), order[:limit]
    hits = hit_features(matrix, scores, order, limit, regime.fit_logit(known))
    likelihoods = np.where(np.isin(shown, exact), _CALLED_BY_NAME, regime.likelihoods(hits)).astype(np.float32)
    # A tool that has nothing of the query fits in no case, however weak the first is.
    kept = int((scores[shown] >= max(scores[shown[0]] - regime.gap, _LEAST)).sum()) or 1
    answered = bool(exact) or fit >= regime.fit_threshold
    return Ranking(shown, scores[shown], fit, answered, kept, known, hits, likelihoods)


def _scores(matrix: Floats, regime: Regime, exact: Sequence[int], allowed: Mask | None, beside: Beside) -> Floats:
    scores: Floats = regime.weights @ matrix
    if beside.prior is not None:
        scores = scores + beside.prior
    scores = beside.superseded.moved(scores, allowed)
    scores[list(exact)] += EXACT_NAME_BONUS
    return scores


def contributions(
    index: LexicalIndex,
    names: Names,
    query: str,
    cosines: Cosines | None,
    fusion: Fusion,
    positions: Sequence[int],
    allowed: Mask | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> list[dict[str, float]]:
    """What each feature adds to the scores of these tools; they sum up to what `rank` gives them."""
    regime = fusion.long if query_parts(query) else fusion.short
    matrix = feature_matrix(index, names, query, cosines)
    parts = regime.weights[:, None] * matrix[:, list(positions)]
    exact = set(names.exactly(query))
    plain = regime.weights @ matrix
    used = np.zeros_like(plain) if beside.prior is None else beside.prior
    moved = beside.superseded.moved(plain + used, allowed) - plain - used
    return [
        {
            **{name: float(parts[row, column]) for row, name in enumerate(FEATURES)},
            "use": float(used[position]),
            "deprecation": float(moved[position]),
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


def hit_features(matrix: Floats, scores: Floats, order: Positions, limit: int, fit_logit: float) -> Floats:
    """What tells a hit that answers from one that does not, for each of the first `limit` (hits x features)."""
    shown = order[:limit]
    own = scores[shown]
    below = scores[order[1 : len(shown) + 1]]
    # The last of all has nothing below it.
    following = np.concatenate([below, own[len(below) :]])
    rows = (
        matrix[_COLUMN["part_cosine"], shown],
        matrix[_COLUMN["query_met"], shown],
        own - own[0],
        own - following,
        np.full(len(shown), fit_logit),
    )
    return np.stack(rows, axis=1).astype(np.float32)
