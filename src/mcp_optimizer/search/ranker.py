"""Ranks a catalog for one request: computes features, adds them up with learned weights, decides what to return.

Called by the engine and by training, so the weights are learned for exactly the ranking that is served. Does not
compute cosines. `fusion.json` stores two sets of weights, for short and for long requests: how the features add up to a
score, when to answer at all, where to cut, and how likely a hit answers the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.actions import actions, asks_to_destroy, negated
from mcp_optimizer.search.deprecation import Superseded, none_superseded
from mcp_optimizer.search.generality import AT_HAND, at_hand
from mcp_optimizer.search.index_parts import Names, is_identifier
from mcp_optimizer.search.lexical import FIELDS, Floats, WordIndex
from mcp_optimizer.search.tool_texts import query_parts, split_words
from mcp_optimizer.search.words import terms, words

FEATURES: Final = (
    "cosine",  # of the whole query
    "part_cosine",  # the best over the query's parts; the whole query's if it has none
    "bm25_name",
    "bm25_server",
    "bm25_description",
    "bm25_parameters",
    "bm25_all",
    "bm25_part",  # bm25 over all words, the best over the query's parts
    "name_named",  # how much of the tool's name the query contains
    "server_named",  # how much of the server's name the query contains
    "query_met",  # how much of the query the tool's words cover
    "name_phrase",  # 1 if the query contains the whole name, of two words or more
    "same_action",  # 1 if the tool's name has an action that the query asks for
    "other_action",  # -1 if the tool's name has only other actions than the query asks for
    "negation",  # 1 if the name has a negated word of the query as `un...`, -1 if it has the word itself
)
FIT_FEATURES: Final = (
    "best_cosine",  # part cosine of the first tool
    "whole_cosine",  # cosine of the first tool with the whole query
    "lead",  # how far the first score is above the tenth
    "first_met",  # how much of the query the first tool covers
    "first_named",  # how much of the first tool's name the query contains
)
HIT_FEATURES: Final = (
    "hit_cosine",  # part cosine of the hit
    "hit_met",  # how much of the query it covers
    "hit_behind",  # its score minus the first hit's, never above zero
    "hit_ahead",  # its score minus the next hit's
    "hit_fit",  # the logit of the query having an answer at all
)


@dataclass(frozen=True)
class Regime:
    """The learned values for short or for long queries: when to answer, where to cut, how likely a hit is right."""

    weights: Floats
    fit_weights: Floats
    fit_bias: float
    fit_threshold: float
    gap: float
    hit_weights: Floats
    hit_bias: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Regime:
        """Read the values from an entry of `fusion.json`."""
        return cls(
            weights=np.array(stored["weights"], dtype=np.float32),
            fit_weights=np.array(stored["fit_weights"], dtype=np.float32),
            fit_bias=float(stored["fit_bias"]),
            fit_threshold=float(stored["fit_threshold"]),
            gap=float(stored["gap"]),
            hit_weights=np.array(stored["hit_weights"], dtype=np.float32),
            hit_bias=float(stored["hit_bias"]),
        )

    def stored(self) -> dict[str, Any]:
        """What `of` reads."""
        rows = {name: getattr(self, name).tolist() for name in ("weights", "fit_weights", "hit_weights")}
        numbers = {name: getattr(self, name) for name in ("fit_bias", "fit_threshold", "gap", "hit_bias")}
        return {**rows, **numbers}

    def fit_logit(self, known: Floats) -> float:
        """The logit of the query having an answer."""
        return float(weighed(known, self.fit_weights) + self.fit_bias)

    def fit(self, known: Floats) -> float:
        """How likely some tool answers the query, from 0 to 1."""
        return _likelihood(self.fit_logit(known))

    def likelihoods(self, hits: Floats) -> Floats:
        """How likely each hit answers, given its `HIT_FEATURES`; never more likely than a hit ranked above it."""
        falling: Floats = np.minimum.accumulate(sigmoid(weighed(hits, self.hit_weights) + np.float32(self.hit_bias)))
        return falling


def _likelihood(logit: float) -> float:
    return float(sigmoid(np.float32(logit)))


def weighed(features: Floats, weights: Floats) -> Any:
    """The sum of the features, each times its weight, of one thing or of each row of things.

    Not a matrix product: on some processors those warn of invalid values where there are none, and their threads would
    wait for each other on busy cores.
    """
    return np.einsum("...f,f->...", features, weights)


def sigmoid(values: Any) -> Any:
    """The logistic function: maps any number to a value between 0 and 1."""
    # Without `np.clip`, which takes longer than all the rest of this line.
    return 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(values, -30.0), 30.0)))


@dataclass(frozen=True)
class Fusion:
    """The learned values for one encoder."""

    short: Regime
    long: Regime
    general: float = 2.0
    """Minimum cosine with a kind of general-purpose tool for a tool to count as one; above 1, none does."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Fusion:
        """Read one encoder's entry of `fusion.json`; rejects weights that were made for other features."""
        made_for = (tuple(stored["features"]), tuple(stored["fit_features"]), tuple(stored["hit_features"]))
        if made_for != (FEATURES, FIT_FEATURES, HIT_FEATURES):
            raise ValueError("fusion.json was made for other features than this version computes")
        return cls(Regime.of(stored["short"]), Regime.of(stored["long"]), float(stored["general"]))

    def stored(self) -> dict[str, Any]:
        """What `of` reads."""
        features = {"features": FEATURES, "fit_features": FIT_FEATURES, "hit_features": HIT_FEATURES}
        regimes = {"short": self.short.stored(), "long": self.long.stored()}
        return {**{name: list(names) for name, names in features.items()}, **regimes, "general": self.general}


def read_fusion(text: str, encoder: str) -> Fusion:
    """The weights for `onnx`, `static` or `none` from the text of `fusion.json`."""
    return Fusion.of(json.loads(text)[encoder])


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Positions = NDArray[np.int64]
else:
    Mask = Positions = Any

EXACT_NAME_BONUS: Final = 1.0
"""Higher than any sum of the other features, so a tool that the request names comes first."""

UNASKED: Final = 0.1
"""Subtracted from a tool that deletes or overwrites if the request does not ask for that: enough to fall behind similar
tools.
"""

_CALLED_BY_NAME: Final = 0.99
"""The likelihood of a tool that the request names."""

LEAST: Final = 1e-6
"""Minimum score of a tool that has anything in common with a request."""

_BRAND = regex(r"\b[A-Z][a-z]+(?:[A-Z][a-z]*)+\b")

_COLUMN: Final = {name: at for at, name in enumerate(FEATURES)}


@dataclass(frozen=True)
class Cosines:
    """The cosines of one query: one value per tool for the whole query, and one row for each part."""

    whole: Floats
    parts: Floats
    embedded: Floats | None = None
    """The vector of the whole query."""


@dataclass(frozen=True)
class Asked:
    """A request, and what its words say of all tools: all that can be computed while the encoder works on it."""

    query: str
    words: list[str]
    is_long: bool
    named: list[int]
    """The tools that it names."""
    unasked: Positions
    """The tools that delete or overwrite, if it does not ask for that."""
    near: Positions
    """The tools that are at hand, if it is about this machine."""
    matrix: Floats
    """Every tool's features (features x tools), in the order of `FEATURES`."""

    @classmethod
    def of(cls, index: WordIndex, names: Names, query: str) -> Asked:
        """Without cosines, which are zero."""
        said, parts = words(query), query_parts(query)
        unasked = np.zeros(0, dtype=np.int64) if asks_to_destroy(said) else names.destroying
        matrix = _word_features(index, names, query, said, parts)
        return cls(query, said, bool(parts), names.exactly(query), unasked, at_hand(index, query), matrix)

    def with_cosines(self, cosines: Cosines | None) -> Asked:
        """Fill the cosines into the features, in place."""
        if cosines is not None:
            self.matrix[_COLUMN["cosine"]] = cosines.whole
            best = cosines.parts.max(axis=0) if len(cosines.parts) else cosines.whole
            self.matrix[_COLUMN["part_cosine"]] = best
        return self


def feature_matrix(index: WordIndex, names: Names, query: str, cosines: Cosines | None) -> Floats:
    """Every tool's features (features x tools), in the order of `FEATURES`; cosines are zero if not given."""
    return Asked.of(index, names, query).with_cosines(cosines).matrix


def _word_features(index: WordIndex, names: Names, query: str, said: list[str], parts: list[str]) -> Floats:
    asked = asked_terms(index, query)
    matrix = np.zeros((len(FEATURES), index.size), dtype=np.float32)
    first = _COLUMN["bm25_name"]
    _scale_rows(index.scores(asked, matrix[first : first + len(FIELDS)]))
    part = _COLUMN["bm25_part"]
    matrix[part] = matrix[_COLUMN["bm25_all"]]
    if parts:
        rows = [index.field_scores(terms(piece), "all") for piece in parts]
        matrix[part] = _scale_rows(np.stack(rows)).max(axis=0)
    matrix[_COLUMN["name_named"]] = named = index.named(asked, "name")
    matrix[_COLUMN["server_named"]] = index.named(asked, "server")
    matrix[_COLUMN["query_met"]] = index.met(asked)
    matrix[_COLUMN["name_phrase"]] = _name_phrases(names, query, named)
    unwanted = negated(query)
    if wanted := actions([word for word in said if word not in unwanted]):
        shared = (names.actions & wanted) > 0
        matrix[_COLUMN["same_action"]] = shared
        matrix[_COLUMN["other_action"]] = -((names.actions > 0) & ~shared).astype(np.float32)
    for word in unwanted:
        matrix[_COLUMN["negation"]] += index.named(terms(f"un{word}"), "name") > 0
        matrix[_COLUMN["negation"]] -= index.named(terms(word), "name") > 0
    return matrix


def asked_terms(index: WordIndex, query: str) -> list[str]:
    """The terms of a query. A name like GitHub is split like an identifier, and also kept as one word if known."""
    joined = [term for name in _BRAND.findall(query) for term in terms(name.lower()) if index.knows(term)]
    return terms(query) + joined


def _scale_rows(rows: Floats) -> Floats:
    """Divide each row by its maximum, in place, to make fields and queries comparable."""
    if rows.size:
        best = rows.max(axis=1, keepdims=True)
        best[best <= 0] = 1
        rows /= best
    return rows


def _name_phrases(names: Names, query: str, name_named: Floats) -> Floats:
    """1 where the query contains a whole name of two or more words; checks only names whose words all occur."""
    result = np.zeros(len(names.spelt), dtype=np.float32)
    text = f" {split_words(query)} "
    for position in np.flatnonzero(name_named > 0.99):
        name = names.spelt[position]
        if " " in name and f" {name} " in text:
            result[position] = 1.0
    return result


@dataclass(frozen=True)
class Ranking:
    """The best tools first, with their scores, and how likely the first answers the query."""

    positions: Positions
    scores: Floats
    fit: float
    answered: bool
    """False if nothing fits, so nothing should be returned."""
    kept: int
    """How many of the first tools fit by their scores; at least one, if there are any tools."""
    known: Floats
    """The `FIT_FEATURES` from which `fit` is computed."""
    hits: Floats
    """The `HIT_FEATURES` of each tool, from which `likelihoods` are computed."""
    likelihoods: Floats
    """How likely each tool answers the query, from 0 to 1; a lower rank is never more likely."""


@cache
def nothing() -> Ranking:
    """The ranking of no tools."""
    none = np.zeros(0, dtype=np.float32)
    return Ranking(np.zeros(0, dtype=np.int64), none, 0.0, False, 0, none, none, none)


@dataclass(frozen=True)
class RankAdjustments:
    """Influences on the ranking other than the request: deprecated tools, and calls made after similar requests."""

    superseded: Superseded = field(default_factory=none_superseded)
    prior: Floats | None = None
    """Small; capped where it is computed."""


def rank(
    index: WordIndex,
    names: Names,
    query: str,
    cosines: Cosines | None,
    fusion: Fusion,
    limit: int,
    allowed: Mask | None = None,
    beside: RankAdjustments | None = None,
    asked: Asked | None = None,
) -> Ranking:
    """The first `limit` of the allowed tools for the query. Tools that are not allowed take no place.

    `asked` is this query with these cosines, if already computed.
    """
    beside = beside or RankAdjustments()
    eligible = np.arange(index.size) if allowed is None else np.flatnonzero(allowed)
    if not len(eligible) or limit < 1:
        return nothing()
    if asked is None:
        asked = Asked.of(index, names, query).with_cosines(cosines)
    if not asked.words:
        # Without any word, the cosines are only noise.
        return nothing()
    regime, matrix = fusion.long if asked.is_long else fusion.short, asked.matrix
    exact = [position for position in _named(asked, beside) if allowed is None or allowed[position]]
    scores = _scores(matrix, regime, exact, allowed, beside)
    scores[_unasked(asked, exact)] -= np.float32(UNASKED)
    scores[asked.near] += np.float32(AT_HAND)
    order = _first(scores, eligible, max(limit, 10) + 1)
    known = fit_features(matrix, scores, order)
    logit, shown = regime.fit_logit(known), order[:limit]
    fit, own = _likelihood(logit), scores[shown]
    hits = hit_features(matrix, scores, order, limit, logit)
    likelihoods = regime.likelihoods(hits).astype(np.float32)
    if exact:
        likelihoods[np.isin(shown, exact)] = _CALLED_BY_NAME
    # A tool that has nothing in common with the query never fits, however weak the first is.
    kept = int(np.count_nonzero(own >= max(own[0] - regime.gap, LEAST))) or 1
    answered = bool(exact) or fit >= regime.fit_threshold
    return Ranking(shown, own, fit, answered, kept, known, hits, likelihoods)


def _scores(
    matrix: Floats, regime: Regime, exact: Sequence[int], allowed: Mask | None, beside: RankAdjustments
) -> Floats:
    scores: Floats = weighed(matrix.T, regime.weights)
    if beside.prior is not None:
        scores = scores + beside.prior
    scores = beside.superseded.moved(scores, allowed)
    if exact:
        scores[list(exact)] += EXACT_NAME_BONUS
    return scores


def _named(asked: Asked, beside: RankAdjustments) -> list[int]:
    """The tools that the query names. A plain request such as "read a file" does not name a deprecated read_file."""
    if not asked.named or is_identifier(asked.query):
        return asked.named
    deprecated = frozenset(beside.superseded.old.tolist())
    return [position for position in asked.named if position not in deprecated]


def _unasked(asked: Asked, exact: Sequence[int]) -> Positions:
    """The tools that delete or overwrite although the request neither asks for that nor names them."""
    return asked.unasked[~np.isin(asked.unasked, exact)] if exact else asked.unasked


def contributions(
    index: WordIndex,
    names: Names,
    query: str,
    cosines: Cosines | None,
    fusion: Fusion,
    positions: Sequence[int],
    allowed: Mask | None = None,
    beside: RankAdjustments | None = None,
) -> list[dict[str, float]]:
    """What each feature adds to the scores of these tools; the values add up to the score from `rank`."""
    beside = beside or RankAdjustments()
    asked = Asked.of(index, names, query).with_cosines(cosines)
    regime, matrix = fusion.long if asked.is_long else fusion.short, asked.matrix
    parts = regime.weights[:, None] * matrix[:, list(positions)]
    exact = set(_named(asked, beside))
    plain = weighed(matrix.T, regime.weights)
    used = np.zeros_like(plain) if beside.prior is None else beside.prior
    moved = beside.superseded.moved(plain + used, allowed) - plain - used
    unasked = frozenset(_unasked(asked, sorted(exact)).tolist())
    near = frozenset(asked.near.tolist())
    return [
        {
            **{name: float(parts[row, column]) for row, name in enumerate(FEATURES)},
            "use": float(used[position]),
            "deprecation": float(moved[position]),
            "unasked": -UNASKED if position in unasked else 0.0,
            "at_hand": AT_HAND if position in near else 0.0,
            "exact_name": EXACT_NAME_BONUS if position in exact else 0.0,
        }
        for column, position in enumerate(positions)
    ]


def _first(scores: Floats, eligible: Positions, count: int) -> Positions:
    """The best positions. Ties go to the earlier one, so the same catalog always gives the same ranking."""
    own = scores[eligible]
    if count < len(own):
        last = np.partition(own, len(own) - count)[len(own) - count]
        eligible = eligible[own >= last]
        own = scores[eligible]
    # The positions ascend and equal scores keep their order.
    ordered: Positions = eligible[np.argsort(-own, kind="stable")][:count]
    return ordered


def fit_features(matrix: Floats, scores: Floats, order: Positions) -> Floats:
    """The features that distinguish a query that some tool answers from one that no tool answers."""
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
    """The features that distinguish right hits from wrong ones, for the first `limit` hits (hits x features)."""
    shown = order[:limit]
    own = scores[shown]
    rows = np.empty((len(shown), len(HIT_FEATURES)), dtype=np.float32)
    rows[:, 0] = matrix[_COLUMN["part_cosine"], shown]
    rows[:, 1] = matrix[_COLUMN["query_met"], shown]
    rows[:, 2] = own - own[0]
    # The last tool has no tool below it.
    rows[:, 3] = 0.0
    below = scores[order[1 : len(shown) + 1]]
    rows[: len(below), 3] = own[: len(below)] - below
    rows[:, 4] = fit_logit
    return rows
