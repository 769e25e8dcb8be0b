"""Judges whether any tool of a catalog does what a request asks for. Called by the engine, for the tools ranked first.

In a catalog of many servers some tool is always near: "resize image" is near `browser_resize`. What tells it from a
tool that fits is the rest of the world: of all kinds of tools there are, summed up in a bundled table of vectors, some
are much nearer to the request than any tool here. `training/doubt.py` makes the table and the weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.ranker import FEATURES, Cosines, Ranking, sigmoid, weighed

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOUBT_FEATURES: Final = (
    "cosine",  # of the first tool
    "background",  # the mean cosine of all tools
    "general",  # the best cosine of a general-purpose tool
    "world",  # how far the tools here are ahead of those elsewhere; mostly negative
    "lead",  # how far the first score is above the tenth
    "same_action",  # of the first tool, as in the ranking
    "other_action",
)


class Outlook(Enum):
    """What a search found: tools that fit, at most general-purpose tools, or only tools that are near."""

    FITS = auto()
    GENERAL = auto()
    NONE = auto()


SURE: Final = 0.75
"""From this likelihood of the first hit on, it is not asked whether any tool fits."""

MOST_JUDGED: Final = 4_000
"""Tools of a catalog up to which requests are judged: in a larger one, some tool is near everything."""

LONGEST: Final = 15
"""Words of a request up to which it is judged. Longer ones say what they want in many ways; none of the requests that
the weights were learned from, and that no tool answers, was longer.
"""

_NEAREST: Final = 50
_SHARPNESS: Final = 20.0
"""How much nearer tools count when the nearness to many is summed up."""

_KNOWLEDGE = regex(
    r"^(?:who|whom|whose|what|when|where|which|why|how|is|are|was|were|does|do|did|has|have|can|current|latest|best|any|"
    r"opening|name of|define|meaning)\b"
    r"|^(?:find|search|look|get|show)\b.{0,30}\b(?:news|information|facts|articles?|latest|newest|recent|best|cheapest)\b",
    re.I,
)
_PERSONAL = regex(r"\b(?:my|me|mine|our|ours|we|us|i|i'm|i've|this|these|that|here)\b", re.I)


def asks_the_world(query: str) -> bool:
    """Whether a request is a question that a search of the web may answer, whatever it is about."""
    return _KNOWLEDGE.search(query) is not None and _PERSONAL.search(query) is None


@dataclass(frozen=True)
class World:
    """The kinds of tools that there are elsewhere: unit vectors, each near to many tools."""

    vectors: Floats

    @classmethod
    def of(cls, vectors: NDArray[Any]) -> World:
        """From vectors of any type and length."""
        rows = vectors.astype(np.float32)
        return cls(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    def nearness(self, embedded: Floats) -> float:
        """How near the tools elsewhere are to a request, the nearest counting most."""
        return _summed(np.einsum("kd,d->k", self.vectors, embedded))


@dataclass(frozen=True)
class Judge:
    """The learned weights, and the score below which no tool fits."""

    weights: Floats
    bias: float
    threshold: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Judge:
        """Read `doubt.json`; rejects weights that were made for other features."""
        if tuple(stored["features"]) != DOUBT_FEATURES:
            raise ValueError("doubt.json was made for other features than this version computes")
        return cls(np.array(stored["weights"], dtype=np.float32), float(stored["bias"]), float(stored["threshold"]))

    def score(self, known: Floats) -> float:
        """How likely some tool answers, from 0 to 1, where both are equally frequent."""
        return float(sigmoid(weighed(known, self.weights) + self.bias))


@cache
def bundled_world() -> World:
    """The bundled table, made with the bundled encoder; its vectors fit no other."""
    folder = resources.files("mcp_optimizer") / "search" / "model"
    with (folder / "world.npy").open("rb") as stored:
        return World.of(np.load(stored))


@cache
def bundled_judge() -> Judge:
    """The bundled weights."""
    stored = resources.files("mcp_optimizer") / "search" / "model" / "doubt.json"
    return Judge.of(json.loads(stored.read_text(encoding="utf-8")))


def is_short(asked: Sequence[str]) -> bool:
    """Whether a request of these words is short enough to be judged."""
    return len(asked) <= LONGEST


def doubt_features(cosines: Cosines, matrix: Floats, ranking: Ranking, general: float, world: World) -> Floats:
    """The `DOUBT_FEATURES` of one request. `general`: the best cosine of a general-purpose tool, or zero."""
    assert cosines.embedded is not None
    first, scores = ranking.positions[0], ranking.scores
    here = _summed(np.sort(cosines.whole[ranking.positions])[::-1][:_NEAREST])
    return np.array(
        (
            cosines.whole[first],
            np.add.reduce(cosines.whole) / len(cosines.whole),
            general,
            here - world.nearness(cosines.embedded),
            scores[0] - scores[min(9, len(scores) - 1)],
            matrix[FEATURES.index("same_action"), first],
            matrix[FEATURES.index("other_action"), first],
        ),
        dtype=np.float32,
    )


def _summed(cosines: Floats) -> float:
    best = float(np.maximum.reduce(cosines))
    return best + float(np.log(np.add.reduce(np.exp(_SHARPNESS * (cosines - best))))) / _SHARPNESS
