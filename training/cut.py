"""Sets below which fit a query is refused and where hits are cut: `python -m training.cut --encoder NAME ...`.

Reads the weights `fusion.py` learned on the train sets and chooses, on dev, the strictest numbers whose cost in
recall@5 stays within what is allowed. Changes the encoder's entry of `fusion.json` in place.
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

REFUSING_MAY_COST = {"short": 0.0055, "long": 0.0035}  # recall@5, mean over dev; .01 together, with a margin
CUTTING_MAY_COST = {"short": 0.002, "long": 0.003}
THRESHOLDS = np.concatenate([[0.0], np.geomspace(1e-5, 0.01, 40)[:-1], np.arange(0.01, 0.9, 0.01)])
GAPS = np.arange(0.1, 1.5, 0.05)


@dataclass(frozen=True, slots=True)
class Hit:
    """One right tool among the first five: its query's fit, its distance to the first, what losing it costs."""

    fit: float
    gap: float
    cost: float


def hits_of(dev: dict[str, Vectors], fusion: Fusion, is_long: bool, use_cosines: bool) -> list[Hit]:
    """Every group met among the first five of the short or the long dev queries."""
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


def choose(regime: Regime, hits: list[Hit], name: str) -> tuple[Regime, dict[str, float]]:
    """The highest threshold and the smallest gap that cost no more than allowed."""
    refusing = [sum(hit.cost for hit in hits if hit.fit < level) for level in THRESHOLDS]
    cutting = [sum(hit.cost for hit in hits if hit.gap > gap) for gap in GAPS]
    level = max(at for at, cost in enumerate(refusing) if cost <= REFUSING_MAY_COST[name])
    gap = min(at for at, cost in enumerate(cutting) if cost <= CUTTING_MAY_COST[name])
    chosen = {"fit_threshold": round(float(THRESHOLDS[level]), 6), "gap": round(float(GAPS[gap]), 2)}
    costs = {"refusing_costs": round(refusing[level], 4), "cutting_costs": round(cutting[gap], 4)}
    return replace(regime, **chosen), {**chosen, **costs}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, choices=("onnx", "static", "none"))
    parser.add_argument("--dev", type=Path, required=True, help="the encoder's vectors of the dev sets")
    parser.add_argument("--fusion", type=Path, required=True)
    options = parser.parse_args()
    entries = json.loads(options.fusion.read_text(encoding="utf-8"))
    fusion = Fusion.of(entries[options.encoder])
    dev = {name: one for name, one in read_vectors([options.dev]).items() if name in sets.DEV_SETS}
    report = {}
    chosen = {}
    for name, regime in (("short", fusion.short), ("long", fusion.long)):
        hits = hits_of(dev, fusion, name == "long", options.encoder != "none")
        chosen[name], report[name] = choose(regime, hits, name)
    entry = {**Fusion(**chosen).stored(), "report": {**entries[options.encoder]["report"], "cut": report}}
    options.fusion.write_text(json.dumps({**entries, options.encoder: entry}, indent=1), encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
