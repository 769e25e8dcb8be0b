"""Chooses when a query is refused and where hits are cut: `python -m training.cut --encoder NAME ...`.

Reads the weights that `fusion.py` learned. The fit threshold is the strictest that refuses few requests of every dev
set and every held-out fold of the written requests. The cut is the strictest whose cost in recall@5 on dev is allowed.
Changes the encoder's entry of `fusion.json` in place.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from training import metrics, sets
from training.features import query_parts
from training.fusion import Vectors, read_vectors
from training.ranker import Catalog, Fusion, Regime, rank

MOST_REFUSED = 0.01  # share of a set's requests that may be refused although a tool answers them
CUTTING_MAY_COST = {"short": 0.002, "long": 0.003}
GAPS = np.arange(0.1, 1.5, 0.05)


def refusable(
    loaded: dict[str, sets.ToolSet], vectors: dict[str, Vectors], fusion: Fusion, use_cosines: bool
) -> dict[str, list[tuple[bool, float]]]:
    """For each set, whether each request is long, and its fit."""
    found: dict[str, list[tuple[bool, float]]] = {}
    for name, tool_set in loaded.items():
        catalog = Catalog.build(tool_set.tools)
        for at, position in enumerate(vectors[name].index):
            query = tool_set.queries[int(position)]
            if query.groups:
                ranked = rank(catalog, query.text, vectors[name].cosines(at) if use_cosines else None, fusion, 1)
                found.setdefault(name, []).append((bool(query_parts(query.text)), ranked.fit))
    return found


def strictest(fits: dict[str, list[tuple[bool, float]]], is_long: bool) -> float:
    """The highest threshold that refuses no more than the allowed share of any set."""
    levels = [sorted(fit for long, fit in found if long == is_long) for found in fits.values()]
    return min(one[int(len(one) * MOST_REFUSED)] for one in levels if len(one) >= 40)


@dataclass(frozen=True, slots=True)
class Hit:
    """One right tool among the first five: its query's fit, its distance to the first hit, the cost of losing it."""

    fit: float
    gap: float
    cost: float


def hits_of(dev: dict[str, Vectors], fusion: Fusion, is_long: bool, use_cosines: bool) -> list[Hit]:
    """Every group met among the first five hits of the short or the long dev queries."""
    found: list[Hit] = []
    for name, vectors in dev.items():
        tool_set = sets.load_dev(name)
        catalog = Catalog.build(tool_set.tools)
        for at, query in enumerate(tool_set.queries):
            if bool(query_parts(query.text)) == is_long and query.groups:
                ranked = rank(catalog, query.text, vectors.cosines(at) if use_cosines else None, fusion, 5)
                met = metrics.groups_met(ranked.positions.tolist(), query)
                cost = 1.0 / len(query.groups) / len(tool_set.queries) / len(dev)
                gaps = ranked.scores[0] - ranked.scores
                found.extend(Hit(ranked.fit, float(gap), cost) for gap, one in zip(gaps, met, strict=True) if one)
    return found


def choose(regime: Regime, hits: list[Hit], name: str, threshold: float) -> tuple[Regime, dict[str, float]]:
    """The regime with the threshold and the smallest gap that costs no more than allowed, and the costs of both."""
    refusing = sum(hit.cost for hit in hits if hit.fit < threshold)
    cutting = [sum(hit.cost for hit in hits if hit.gap > gap) for gap in GAPS]
    gap = min(at for at, cost in enumerate(cutting) if cost <= CUTTING_MAY_COST[name])
    chosen = {"fit_threshold": round(threshold, 6), "gap": round(float(GAPS[gap]), 2)}
    costs = {"refusing_costs": round(refusing, 4), "cutting_costs": round(cutting[gap], 4)}
    return replace(regime, **chosen), {**chosen, **costs}


def main() -> None:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, choices=("onnx", "static", "none"))
    parser.add_argument("--dev", type=Path, required=True, help="the encoder's vectors of the dev sets")
    parser.add_argument("--held", type=Path, nargs="+", required=True, help="vectors of unseen written folds")
    parser.add_argument("--fusion", type=Path, required=True)
    options = parser.parse_args()
    entries = json.loads(options.fusion.read_text(encoding="utf-8"))
    fusion = Fusion.of(entries[options.encoder])
    dev = {name: one for name, one in read_vectors([options.dev]).items() if name in sets.DEV_SETS}
    held = {name: one for name, one in read_vectors(options.held).items() if name in sets.WRITTEN_FOLDS}
    use_cosines = options.encoder != "none"
    fits = refusable({name: sets.load_dev(name) for name in dev}, dev, fusion, use_cosines)
    fits |= refusable({name: sets.load_train(name) for name in held}, held, fusion, use_cosines)
    report = {}
    chosen = {}
    for name, regime in (("short", fusion.short), ("long", fusion.long)):
        hits = hits_of(dev, fusion, name == "long", use_cosines)
        chosen[name], report[name] = choose(regime, hits, name, strictest(fits, name == "long"))
    entry = {**replace(fusion, **chosen).stored(), "report": {**entries[options.encoder]["report"], "cut": report}}
    options.fusion.write_text(json.dumps({**entries, options.encoder: entry}, indent=1), encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
