"""Learns how the features add up, and how to recognise that nothing fits: `python -m training.fusion ...`.

Learns on the train sets only, with vectors of encoders that never saw the set in question (written by `sweep.py`),
and validates by leaving one set out. One number for short and one for long queries is chosen on dev, which exists for
such choices: how far the weights of words shrink relative to the cosine. `cut.py` then sets the thresholds.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import metrics, sets
from training.features import Floats, query_parts
from training.ranker import FEATURES, FIT_FEATURES, HIT_FEATURES, Catalog, Cosines, Fusion, Regime, feature_matrix, rank

CANDIDATES = 60
NO_CUT = 9.0
SMALLEST_SET = 80
COSINES = ("cosine", "part_cosine")
SHRINKS = (0.2, 0.25, 0.3, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0)
CATALOG_SERVERS = 40
UNLIKE = 0.45  # a request is foreign to a catalog if none of its tools is this near to one that answers
SERVER_NAMED_FLOOR = 0.02  # train sets hardly ever name servers; people do, and dev gains a little


@dataclass(frozen=True, slots=True)
class Vectors:
    """One set's vectors from one encoder, for some of its queries."""

    tools: Floats
    queries: Floats
    parts: Floats
    part_counts: NDArray[np.int64]
    index: NDArray[np.int64]

    def cosines(self, at: int, chosen: NDArray[np.int64] | slice = slice(None)) -> Cosines:
        """The cosines of query number `at` with the chosen tools."""
        begin = int(self.part_counts[:at].sum())
        tools = self.tools[chosen]
        parts = self.parts[begin : begin + int(self.part_counts[at])]
        return Cosines(tools @ self.queries[at], parts @ tools.T)


def unit(rows: NDArray[np.generic]) -> Floats:
    """Rows of any type as float unit vectors."""
    values = rows.astype(np.float32).reshape(len(rows), -1)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9) if len(rows) else values


def read_vectors(paths: Sequence[Path]) -> dict[str, Vectors]:
    """Every set in the files that `sweep.py` and `evaluate.py` wrote."""
    found: dict[str, Vectors] = {}
    for path in paths:
        with np.load(path) as stored:
            for name in sorted({key.split("/")[0] for key in stored.files}):
                tools = unit(stored[f"{name}/tools"])
                parts = stored[f"{name}/parts"]
                found[name] = Vectors(
                    tools,
                    unit(stored[f"{name}/queries"]),
                    unit(parts) if len(parts) else np.zeros((0, tools.shape[1]), dtype=np.float32),
                    stored[f"{name}/part_counts"],
                    stored[f"{name}/index"],
                )
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """One query with the features of its best candidates."""

    query: sets.Query
    is_long: bool
    tools: NDArray[np.int64]
    features: Floats


def cases_of(tool_set: sets.ToolSet, vectors: Vectors, use_cosines: bool) -> list[Case]:
    """The set's sampled queries. A plain sum picks the candidates; it finds what any weights would rank high."""
    catalog = Catalog.build(tool_set.tools)
    rough = np.array([12.0 if name in COSINES else 1.0 for name in FEATURES], dtype=np.float32)
    found = []
    for at, position in enumerate(vectors.index):
        query = tool_set.queries[int(position)]
        if query.groups:
            matrix = feature_matrix(catalog, query.text, vectors.cosines(at) if use_cosines else None)
            best = np.argsort(-(matrix @ rough), kind="stable")[:CANDIDATES]
            found.append(Case(query, bool(query_parts(query.text)), best, matrix[best]))
    return found


def padded(cases: Sequence[Case]) -> tuple[Tensor, Tensor, Tensor]:
    """Features, which candidates are right, and which exist at all."""
    features = torch.zeros(len(cases), CANDIDATES, len(FEATURES))
    right = torch.zeros(len(cases), CANDIDATES, dtype=torch.bool)
    there = torch.zeros(len(cases), CANDIDATES, dtype=torch.bool)
    for at, case in enumerate(cases):
        count = len(case.tools)
        features[at, :count] = torch.from_numpy(case.features)
        right[at, :count] = torch.tensor([int(tool) in case.query.relevant for tool in case.tools])
        there[at, :count] = True
    found = right.any(1)
    return features[found], right[found], there[found]


def learn(groups: Sequence[Sequence[Case]], used: Sequence[str], steps: int = 200) -> Floats:
    """Non-negative weights, by softmax of each right tool against the wrong ones; all sets count equally."""
    data = [padded(cases) for cases in groups]
    mask = torch.tensor([name in used for name in FEATURES], dtype=torch.float32)
    spread = torch.cat([features[there] for features, _, there in data]).std(0).clamp(min=1e-3)
    weights = (0.5 * mask).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.05)
    for _ in range(steps):
        loss = 1e-3 * (weights**2).sum()
        for features, right, there in data:
            scores = (features / spread @ (weights * mask)).masked_fill(~there, -1e4)
            wrong = torch.logsumexp(scores.masked_fill(right, -1e4), 1, keepdim=True)
            each = (torch.logaddexp(scores, wrong) - scores) * right
            loss = loss + (each.sum(1) / right.sum(1)).mean() / len(data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(min=0.0)
    return (weights.detach() * mask / spread).numpy().astype(np.float32)


def shrunk(weights: Floats, shrink: float) -> Floats:
    """Weights scaled so that the cosines' sum to one, with the words' shrunk relative to them."""
    is_cosine = np.array([name in COSINES for name in FEATURES])
    whole = float(weights[is_cosine].sum())
    if whole <= 0.0:
        return weights / np.float32(max(float(weights.sum()), 1e-9))
    result = np.where(is_cosine, weights, weights * shrink) / whole
    floor = FEATURES.index("server_named")
    result[floor] = max(result[floor], SERVER_NAMED_FLOOR)
    return result.astype(np.float32)


def ndcg(cases: Sequence[Case], weights: Floats) -> float:
    """Mean nDCG@5 of the cases with these weights."""
    ranked = [case.tools[np.argsort(-(case.features @ weights), kind="stable")[:10]].tolist() for case in cases]
    return metrics.figures(ranked, [case.query for case in cases]).ndcg5


def used_features(is_long: bool, use_cosines: bool) -> tuple[str, ...]:
    """The features to learn: short queries have no parts, and without an encoder there is no cosine."""
    left_out = () if is_long else ("part_cosine", "bm25_part")
    return tuple(n for n in FEATURES if n not in left_out and (use_cosines or n not in COSINES))


def learn_regime(
    train: dict[str, list[Case]], dev: dict[str, list[Case]], is_long: bool, use_cosines: bool
) -> tuple[Floats, dict[str, object]]:
    """The weights for short or for long queries, and their figures on left-out sets and on dev."""
    kept = {name: [case for case in cases if case.is_long == is_long] for name, cases in train.items()}
    kept = {name: cases for name, cases in kept.items() if len(cases) >= SMALLEST_SET}
    measured = {name: [case for case in cases if case.is_long == is_long] for name, cases in dev.items()}
    measured = {name: cases for name, cases in measured.items() if len(cases) >= 20}
    used = used_features(is_long, use_cosines)
    left_out = {}
    for name in kept:
        weights = learn([cases for other, cases in kept.items() if other != name], used)
        left_out[name] = {shrink: round(ndcg(kept[name], shrunk(weights, shrink)), 4) for shrink in SHRINKS}
    weights = learn(list(kept.values()), used)

    def on_dev(shrink: float) -> float:
        return float(np.mean([ndcg(cases, shrunk(weights, shrink)) for cases in measured.values()]))

    best = max(SHRINKS, key=on_dev)
    report = {"left_out": left_out, "dev": {s: round(on_dev(s), 4) for s in SHRINKS}, "shrink": best}
    return shrunk(weights, best), report


@dataclass(frozen=True, slots=True)
class FitCase:
    """One request to a small catalog: its fit features, and whether a tool answers it."""

    known: Floats
    answered: bool
    set_name: str


@dataclass(frozen=True, slots=True)
class HitCase:
    """The first hits of one request, and which of them are right."""

    hits: Floats
    right: NDArray[np.bool_]
    set_name: str
    is_long: bool


SHOWN = 8


def hit_cases(tool_set: sets.ToolSet, vectors: Vectors, fusion: Fusion, use_cosines: bool) -> list[HitCase]:
    """The hits of every sampled request in the whole catalog."""
    catalog = Catalog.build(tool_set.tools)
    found = []
    for at, position in enumerate(vectors.index):
        query = tool_set.queries[int(position)]
        if query.groups:
            ranked = rank(catalog, query.text, vectors.cosines(at) if use_cosines else None, fusion, SHOWN)
            right = np.array([int(tool) in query.relevant for tool in ranked.positions], dtype=np.bool_)
            if len(right):
                found.append(HitCase(ranked.hits, right, tool_set.name, bool(query_parts(query.text))))
    return found


def learn_hits(cases: Sequence[HitCase]) -> tuple[Floats, float]:
    """Logistic regression of 'this hit answers'; all sets count equally."""
    sizes = Counter(case.set_name for case in cases)
    data = torch.from_numpy(np.concatenate([case.hits for case in cases]))
    wanted = torch.from_numpy(np.concatenate([case.right for case in cases]).astype(np.float32))
    each = [np.full(len(case.right), 1.0 / sizes[case.set_name]) for case in cases]
    balance = torch.from_numpy(np.concatenate(each).astype(np.float32))
    mean, spread = data.mean(0), data.std(0).clamp(min=1e-3)
    weights, bias = torch.zeros(len(HIT_FEATURES), requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=0.05)
    for _ in range(400):
        logits = (data - mean) / spread @ weights + bias
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        loss = (losses * balance).sum() / balance.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(min=0.0)
    plain = (weights / spread).detach()
    return plain.numpy(), float(bias.detach() - (plain * mean).sum())


def with_hits(regime: Regime, cases: Sequence[HitCase]) -> Regime:
    """The regime with learned weights for the likelihoods of hits."""
    weights, bias = learn_hits(cases)
    return replace(regime, hit_weights=weights, hit_bias=bias)


def is_foreign(tools: Floats, gold: frozenset[int], chosen: NDArray[np.int64]) -> bool:
    """Whether no tool in the catalog resembles one that would answer."""
    return float((tools[sorted(gold)] @ tools[chosen].T).max()) < UNLIKE


def fit_cases(
    tool_set: sets.ToolSet, vectors: Vectors, likeness: Floats, fusion: Fusion, use_cosines: bool
) -> list[FitCase]:
    """Requests to small catalogs of some servers: those whose tool is found there, and foreign ones."""
    chance = random.Random(7)  # noqa: S311 - drawing catalogs, not secrets
    by_server: dict[str, list[int]] = {}
    for position, tool in enumerate(tool_set.tools):
        by_server.setdefault(tool.server, []).append(position)
    found: list[FitCase] = []
    for _ in range(16):
        servers = chance.sample(sorted(by_server), min(CATALOG_SERVERS, max(2, len(by_server) // 2)))
        chosen = np.array(sorted(at for server in servers for at in by_server[server]))
        if len(chosen) < 10:
            continue
        catalog, inside = Catalog.build([tool_set.tools[at] for at in chosen]), set(chosen.tolist())
        for at in chance.sample(range(len(vectors.index)), min(len(vectors.index), 150)):
            query = tool_set.queries[int(vectors.index[at])]
            own = bool(inside & query.relevant)
            if not query.groups or not (own or is_foreign(likeness, query.relevant, chosen)):
                continue
            ranked = rank(catalog, query.text, vectors.cosines(at, chosen) if use_cosines else None, fusion, 10)
            right = own and bool(set(chosen[ranked.positions[:5]].tolist()) & query.relevant)
            if right or not own:
                found.append(FitCase(ranked.known, right, tool_set.name))
    return found


def learn_fit(cases: Sequence[FitCase]) -> tuple[Floats, float]:
    """Logistic regression of 'something answers'; all sets and both outcomes count equally."""
    known = np.stack([case.known for case in cases])
    answers = np.array([case.answered for case in cases])
    where = np.array([case.set_name for case in cases])
    data, wanted = torch.from_numpy(known), torch.from_numpy(answers.astype(np.float32))
    mean, spread = data.mean(0), data.std(0).clamp(min=1e-3)
    balance = torch.zeros(len(cases))
    for name in np.unique(where):
        for outcome in (True, False):
            chosen = torch.from_numpy((where == name) & (answers == outcome))
            balance[chosen] = 1.0 / max(20, int(chosen.sum()))
    weights, bias = torch.zeros(len(FIT_FEATURES), requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=0.05)
    for _ in range(500):
        logits = (data - mean) / spread @ weights + bias
        each = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        loss = (each * balance).sum() / balance.sum() + 1e-3 * (weights**2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(min=0.0)  # without this, the scores of a left-out set can be inverted
    plain = (weights / spread).detach()
    final = float(bias.detach() - (plain * mean).sum())
    return plain.numpy(), final


def told_apart(cases: Sequence[FitCase]) -> dict[str, float]:
    """For each set, with weights learned on the others: how often an own request scores above a foreign one."""
    result = {}
    for name in sorted({case.set_name for case in cases}):
        weights, bias = learn_fit([case for case in cases if case.set_name != name])
        scores = {right: [] for right in (True, False)}
        for case in cases:
            if case.set_name == name:
                scores[case.answered].append(float(case.known @ weights + bias))
        if min(map(len, scores.values())) >= 20:
            above = np.array(scores[True])[:, None] > np.array(scores[False])[None]
            result[name] = round(float(above.mean()), 3)
    return result


def with_fit(regime: Regime, cases: Sequence[FitCase]) -> Regime:
    """The regime with learned fit weights; `cut.py` chooses the threshold."""
    weights, bias = learn_fit(cases)
    return replace(regime, fit_weights=weights, fit_bias=bias)


def fuse(
    train: dict[str, Vectors], dev: dict[str, Vectors], likeness: dict[str, Vectors], use_cosines: bool
) -> tuple[Fusion, dict[str, object]]:
    """Everything the product needs for one encoder, and the figures behind it.

    `likeness` decides which requests are foreign: always the transformer's vectors, whichever encoder ranks.
    """
    train_sets = {name: sets.load_train(name) for name in train}
    train_cases = {name: cases_of(train_sets[name], vectors, use_cosines) for name, vectors in train.items()}
    dev_cases = {name: cases_of(sets.load_dev(name), vectors, use_cosines) for name, vectors in dev.items()}
    none, no_hits = np.zeros(len(FIT_FEATURES), dtype=np.float32), np.zeros(len(HIT_FEATURES), dtype=np.float32)
    regimes: list[Regime] = []
    report: dict[str, object] = {}
    for is_long, name in ((False, "short"), (True, "long")):
        weights, report[name] = learn_regime(train_cases, dev_cases, is_long, use_cosines)
        regimes.append(Regime(weights, none, 0.0, 0.0, NO_CUT, no_hits, 0.0))
    draft = Fusion(*regimes)
    found = [
        case
        for name, vectors in train.items()
        for case in fit_cases(train_sets[name], vectors, likeness[name].tools, draft, use_cosines)
    ]
    report["told_apart_left_out"] = told_apart(found)
    fusion = Fusion(with_fit(draft.short, found), with_fit(draft.long, found))
    hits = [
        case for name, vectors in train.items() for case in hit_cases(train_sets[name], vectors, fusion, use_cosines)
    ]
    return _with_likelihoods(fusion, hits), report


def _with_likelihoods(fusion: Fusion, hits: Sequence[HitCase]) -> Fusion:
    short, long = ([case for case in hits if case.is_long == is_long] for is_long in (False, True))
    return replace(fusion, short=with_hits(fusion.short, short), long=with_hits(fusion.long, long))


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, choices=("onnx", "static", "none"))
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="vectors of unseen train sets")
    parser.add_argument("--dev", type=Path, required=True, help="the shipped encoder's vectors of the dev sets")
    parser.add_argument("--likeness", type=Path, nargs="+", help="the transformer's, if --train is another encoder's")
    parser.add_argument("--out", type=Path, required=True, help="fusion.json; entries of other encoders are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dev = {name: one for name, one in read_vectors([options.dev]).items() if name in sets.DEV_SETS}
    train, likeness = read_vectors(options.train), read_vectors(options.likeness or options.train)
    fusion, report = fuse(train, dev, likeness, options.encoder != "none")
    entries = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    entries[options.encoder] = {**fusion.stored(), "report": report}
    options.out.write_text(json.dumps(entries, indent=1), encoding="utf-8")
    for name, regime in (("short", fusion.short), ("long", fusion.long)):
        print(name, dict(zip(FEATURES, regime.weights.round(3).tolist(), strict=True)))
        print("  fit", dict(zip(FIT_FEATURES, regime.fit_weights.round(2).tolist(), strict=True)))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
