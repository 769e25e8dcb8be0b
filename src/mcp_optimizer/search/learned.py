"""The weights learned for ranking, as stored in `fusion.json`. Pure; used by the ranker and by training.

There is one set for short and one for long requests: how the features add up to a score, when to answer at all, where
to cut, and how likely a hit is to answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.lexical import Floats

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
    """What was learned for short or for long queries: weights, when to answer, where to cut, how likely a hit is."""

    weights: Floats
    fit_weights: Floats
    fit_bias: float
    fit_threshold: float
    gap: float
    hit_weights: Floats
    hit_bias: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Regime:
        """From an entry of `fusion.json`."""
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
        return float(known @ self.fit_weights + self.fit_bias)

    def fit(self, known: Floats) -> float:
        """How likely it is that some tool answers, from 0 to 1."""
        return float(sigmoid(np.float32(self.fit_logit(known))))

    def likelihoods(self, hits: Floats) -> Floats:
        """How likely each hit is to answer, given its `HIT_FEATURES`; never more likely than a hit ranked above it."""
        falling: Floats = np.minimum.accumulate(sigmoid(hits @ self.hit_weights + np.float32(self.hit_bias)))
        return falling


def sigmoid(values: Any) -> Any:
    """Map any number to one between 0 and 1."""
    return 1.0 / (1.0 + np.exp(-np.clip(values, -30.0, 30.0)))


@dataclass(frozen=True)
class Fusion:
    """What was learned for one encoder."""

    short: Regime
    long: Regime
    general: float = 2.0
    """Minimum cosine with a kind of general-purpose tool for a tool to count as one; above 1, none does."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Fusion:
        """From one encoder's entry of `fusion.json`; rejects weights that were made for other features."""
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
