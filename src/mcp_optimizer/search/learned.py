"""The numbers that were learned for ranking, as `fusion.json` keeps them. Pure; the ranker and the training use them.

One set for short and one for long requests: what adds up to a tool's rank, when to answer at all, where to cut, and
how likely a hit is to answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mcp_optimizer.search.lexical import Floats

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
    "same_action",  # the tool's name says that it does what the query asks to be done
    "other_action",  # -1 where the query asks for something else than what the tool's name says
    "negation",  # 1 where the name has what the query negates as `un...`, -1 where it has it plainly
)
FIT_FEATURES: Final = (
    "best_cosine",  # part cosine of the first tool
    "whole_cosine",  # cosine of the first tool with the whole query
    "lead",  # how far the first score is above the tenth
    "first_met",  # how much of the query the first tool has
    "first_named",  # how much of the first tool's name the query names
)
HIT_FEATURES: Final = (
    "hit_cosine",  # part cosine of the hit
    "hit_met",  # how much of the query it has
    "hit_behind",  # its score less the first hit's, never above zero
    "hit_ahead",  # its score less the next hit's
    "hit_fit",  # what speaks for the query having an answer at all
)


@dataclass(frozen=True)
class Regime:
    """Learned numbers for short or for long queries: what adds up, when to answer, where to cut, how sure it is."""

    weights: Floats
    fit_weights: Floats
    fit_bias: float
    fit_threshold: float
    gap: float
    hit_weights: Floats
    hit_bias: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Regime:
        """From `fusion.json`."""
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
        """What speaks for the query having an answer, of any size."""
        return float(known @ self.fit_weights + self.fit_bias)

    def fit(self, known: Floats) -> float:
        """How likely it is that anything here answers, from 0 to 1."""
        return float(sigmoid(np.float32(self.fit_logit(known))))

    def likelihoods(self, hits: Floats) -> Floats:
        """How likely each hit is to answer, given its `HIT_FEATURES`; never more likely than one ranked before it."""
        falling: Floats = np.minimum.accumulate(sigmoid(hits @ self.hit_weights + np.float32(self.hit_bias)))
        return falling


def sigmoid(values: Any) -> Any:
    """From any number to one between 0 and 1."""
    return 1.0 / (1.0 + np.exp(-np.clip(values, -30.0, 30.0)))


@dataclass(frozen=True)
class Fusion:
    """The numbers for one encoder."""

    short: Regime
    long: Regime
    general: float = 2.0
    """How near a tool must be to a kind of general-purpose tool to be one; above 1: none is."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Fusion:
        """From one encoder's entry of `fusion.json`; refuses numbers made for other features."""
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
    """The numbers for `onnx`, `static` or `none` out of `fusion.json`."""
    return Fusion.of(json.loads(text)[encoder])
