"""Makes what tells a request that no tool answers: `python -m training.doubt --out DIR [--cache FILE.npz]`.

Writes vectors that sum up the kinds of tools there are, and the weights of `search/doubt.py`, and prints how many
requests are refused at each cost.

The vectors come from tools that may be shipped: those of servers with a free licence without the servers held out
(`written_dev`), of the train sets, and of the corpora. The weights are learned from every first line of
`benchmarks/search/sets/refusal` and every first tool of the held-out servers; dev helps to choose the threshold. Every
second line is only measured. Embedding takes some minutes; `--cache` keeps it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.paths import DUMPS
from benchmarks.search.refusal import answered, catalogs, unanswered
from benchmarks.search.retrieval import build_index, read_sets
from numpy.typing import NDArray

from mcp_optimizer.search.doubt import DOUBT_FEATURES, World
from mcp_optimizer.search.encoders.choose import load_encoder
from mcp_optimizer.search.engine import Encoder, SearchIndex
from mcp_optimizer.search.lexical import Floats, Vector
from mcp_optimizer.search.vectors import numbers
from training import sets, written

KINDS_OF_TOOLS = 1_024
ROUNDS = 8
SCALE = 360.0
"""Vectors are stored as bytes; no component is above a third."""

SHRINKAGE = 0.01
THRESHOLD = 0.15
"""Chosen by what is printed: it refuses .3 % of the requests of the dev sets, at most 1 % of each, and 1.4 % of the
first requests to held-out servers, of which half are worded indirectly, sloppily or in other languages.
"""

COST = 0.01
"""The share of answered requests for which the threshold is printed that refuses no more of them."""

OF_A_SET = 400
"""Requests of a dev set that are looked at; every one counts as many."""


@dataclass(frozen=True)
class Cached:
    """The bundled encoder, with the vectors that were computed before."""

    encoder: Encoder
    known: dict[str, Floats]

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def fusion(self) -> str:
        return self.encoder.fusion

    def embed_tools(self, texts: Sequence[str]) -> Iterator[Vector]:
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(missing, map(numbers, self.encoder.embed_tools(missing)), strict=True))
        return (self.known[text] for text in texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return np.stack([numbers(vector) for vector in self.embed_tools(texts)])

    def begin_queries(self, texts: Sequence[str]) -> Callable[[], Floats]:
        return lambda: self.embed_queries(texts)


def elsewhere() -> list[str]:
    """The text of every tool that may be shipped."""
    tool_sets = [sets.load_free_servers(written.is_dev)]
    tool_sets += [sets.load_set(sets.data_folder() / "retrieval" / "train" / name) for name in sets.TRAIN_SETS]
    tool_sets += [sets.load_corpus(name) for name in sets.CORPORA]
    return [tool.text() for one in tool_sets for tool in one.tools]


def summed_up(vectors: Floats, count: int) -> Floats:
    """The centres of so many groups of similar vectors."""
    chance = np.random.default_rng(0)
    centres = vectors[chance.choice(len(vectors), count, replace=False)].copy()
    for _ in range(ROUNDS):
        nearest = np.concatenate(
            [(vectors[at : at + 4_000] @ centres.T).argmax(1) for at in range(0, len(vectors), 4_000)]
        )
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        is_empty = np.bincount(nearest, minlength=count) == 0
        sums[is_empty] = vectors[chance.choice(len(vectors), int(is_empty.sum()))]
        centres = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return centres


def index_of(servers: dict[str, str], encoder: Encoder) -> SearchIndex:
    """An index of real servers, given by name with the files of their definitions."""
    tools = []
    for name, dump in servers.items():
        listed = json.loads((DUMPS / f"{dump}.json").read_text(encoding="utf-8"))["tools"]
        tools += [{**tool, "server": name} for tool in listed]
    return build_index(tools, encoder)


@dataclass(frozen=True)
class Known:
    """The features of some requests, and which of these the judge decides on; the others are refused or not."""

    rows: Floats
    is_judged: NDArray[np.bool_]
    is_refused: NDArray[np.bool_]

    @classmethod
    def of(cls, index: SearchIndex, requests: Sequence[str], world: World) -> Known:
        found = [index.doubt(text, world) for text in requests]
        rows = np.stack([row for row, _ in found]) if found else np.zeros((0, len(DOUBT_FEATURES)), dtype=np.float32)
        decided = [fits for _, fits in found]
        return cls(
            rows, np.array([one is None for one in decided], bool), np.array([one is False for one in decided], bool)
        )

    def __add__(self, other: Known) -> Known:
        both = ((self.rows, other.rows), (self.is_judged, other.is_judged), (self.is_refused, other.is_refused))
        return Known(*map(np.concatenate, both))

    def refused(self, scores: Callable[[Floats], Floats], threshold: float) -> float:
        """The share that is refused with a threshold."""
        return float((self.is_refused | (self.is_judged & (scores(self.rows) < threshold))).mean())

    def strictest(self, scores: Callable[[Floats], Floats]) -> float:
        """The highest threshold that refuses no more than may be refused."""
        allowed = int(COST * len(self.rows)) - int(self.is_refused.sum())
        found = np.sort(scores(self.rows)[self.is_judged])
        return float(found[max(allowed, 0)]) if allowed < len(found) else 1.0


def learned(answered: Sequence[Floats], unanswered: Sequence[Floats]) -> tuple[Floats, float]:
    """Logistic regression; both outcomes count equally, and so do the lists of each."""
    data = np.concatenate([*answered, *unanswered]).astype(np.float64)
    right = np.arange(len(data)) < sum(map(len, answered))
    weight = np.concatenate(
        [np.full(len(some), 0.5 / len(both) / len(some)) for both in (answered, unanswered) for some in both]
    )
    mean, spread = data.mean(0), data.std(0) + 1e-6
    scaled = np.c_[(data - mean) / spread, np.ones(len(data))]
    found, ridge = np.zeros(scaled.shape[1]), SHRINKAGE * np.r_[np.ones(scaled.shape[1] - 1), 0.0]
    for _ in range(50):
        likely = 1 / (1 + np.exp(-scaled @ found))
        slope = scaled.T @ (weight * (likely - right)) + ridge * found
        bend = (scaled * (weight * likely * (1 - likely))[:, None]).T @ scaled + np.diag(ridge + 1e-9)
        found -= np.linalg.solve(bend, slope)
    plain = found[:-1] / spread
    return plain.astype(np.float32), float(found[-1] - plain @ mean)


def requests_of(catalog: str, *, chooses: bool) -> tuple[list[str], list[str]]:
    """The answered and the unanswered requests of a catalog that choose, or those that do not."""
    ours = [one.text for one in answered(catalog) if one.chooses is chooses]
    return ours, [one.text for one in unanswered(catalog) if one.chooses is chooses]


def made(out: Path, encoder: Cached) -> None:
    vectors = np.unique(np.stack([*encoder.embed_tools(elsewhere())]).astype(np.float16), axis=0)
    vectors = vectors.astype(np.float32) / np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    stored = np.clip(np.round(summed_up(vectors, KINDS_OF_TOOLS) * SCALE), -127, 127).astype(np.int8)
    world = World.of(stored)
    print(f"{len(vectors):,} tools, {len(stored):,} kinds of them", flush=True)
    met: dict[bool, Known] = {}
    unmet: dict[bool, Known] = {}
    for name, servers in catalogs().items():
        index = index_of(dict(servers), encoder)
        for chooses in (True, False):
            for found, texts in zip((met, unmet), requests_of(name, chooses=chooses), strict=True):
                one = Known.of(index, texts, world)
                found[chooses] = found[chooses] + one if chooses in found else one
    weights, bias = learned([met[True].rows], [unmet[True].rows])

    def scores(rows: Floats) -> Floats:
        likely: Floats = 1 / (1 + np.exp(-(rows @ weights + bias)))
        return likely

    bounds = {"held-out servers": met[True]}
    for tool_set in read_sets(sets.data_folder() / "retrieval" / "dev"):
        step = max(1, len(tool_set.queries) // OF_A_SET)
        texts = [query.text for query in tool_set.queries[::step]]
        bounds[tool_set.name] = Known.of(build_index(tool_set.tools, encoder), texts, world)
    strictest = {name: known.strictest(scores) for name, known in bounds.items()}
    for name, bound in strictest.items():
        one = bounds[name]
        share = one.refused(scores, THRESHOLD)
        judged = f"{len(one.rows)} requests, {one.is_judged.sum()} judged"
        print(f"{name:24} {judged}; threshold at most {bound:.3f}; refused {share:.4f}")
    for chooses in (True, False):
        said = "learned from" if chooses else "only measured"
        print(f"{said} {len(met[chooses].rows)} answered, {len(unmet[chooses].rows)} not")
        for at in sorted({THRESHOLD, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3}):
            shares = (met[chooses].refused(scores, at), unmet[chooses].refused(scores, at))
            print(f"  threshold {at:.4f}: answered refused {shares[0]:.4f}, unanswered refused {shares[1]:.3f}")
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "world.npy", stored)
    made = {"features": DOUBT_FEATURES, "weights": weights.tolist(), "bias": bias, "threshold": THRESHOLD}
    (out / "doubt.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    known: dict[str, Floats] = {}
    if options.cache and options.cache.exists():
        with np.load(options.cache) as stored:
            known = dict(zip(stored["texts"].tolist(), stored["vectors"].astype(np.float32), strict=True))
    encoder, before = Cached(load_encoder("bundled"), known), len(known)
    made(options.out, encoder)
    if options.cache and len(known) > before:
        texts, vectors = np.array(list(known)), np.stack(list(known.values())).astype(np.float16)
        np.savez(options.cache, texts=texts, vectors=vectors)


if __name__ == "__main__":
    main()
