"""Measures rankings: recall over groups, hit rate, and nDCG that counts each group once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from training.sets import Query


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the queries of one set."""

    recall1: float
    recall5: float
    recall10: float
    hit1: float
    hit5: float
    ndcg5: float
    ndcg10: float

    def row(self) -> dict[str, float]:
        """The figures by name, rounded for a table."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def groups_met(ranked: Sequence[int], query: Query) -> list[bool]:
    """For each rank, whether its tool meets a group that no earlier rank met."""
    open_groups = list(query.groups)
    met = []
    for tool in ranked:
        found = next((group for group in open_groups if tool in group), None)
        if found is not None:
            open_groups.remove(found)
        met.append(found is not None)
    return met


def query_figures(ranked: Sequence[int], query: Query) -> tuple[float, ...]:
    """The seven figures of one query."""
    met = np.array(groups_met(ranked[:10], query), dtype=np.float64)
    met = np.pad(met, (0, 10 - len(met)))
    groups = len(query.groups)
    discount = 1.0 / np.log2(np.arange(2, 12))

    def recall(k: int) -> float:
        return float(met[:k].sum()) / groups

    def ndcg(k: int) -> float:
        return float((met[:k] * discount[:k]).sum() / discount[: min(k, groups)].sum())

    return recall(1), recall(5), recall(10), met[0], float(met[:5].any()), ndcg(5), ndcg(10)


def figures(rankings: Iterable[Sequence[int]], queries: Sequence[Query]) -> Figures:
    """Means over all queries that have an answer in the catalog."""
    rows = [query_figures(ranked, q) for ranked, q in zip(rankings, queries, strict=True) if q.groups]
    return Figures(*np.mean(np.array(rows), axis=0).tolist())


def mean_figures(sets: Iterable[Figures]) -> Figures:
    """The unweighted mean over sets."""
    rows = [tuple(asdict(one).values()) for one in sets]
    return Figures(*np.mean(np.array(rows), axis=0).tolist())


BINS = 10


def calibration_error(likelihoods: Sequence[float], right: Sequence[bool]) -> float:
    """Expected calibration error in ten bins: how far stated likelihoods are from the share that was right."""
    stated, came_true = np.array(likelihoods, dtype=np.float64), np.array(right, dtype=np.float64)
    bins = np.minimum((stated * BINS).astype(np.int64), BINS - 1)
    gaps = [
        abs(stated[bins == at].mean() - came_true[bins == at].mean()) * (bins == at).mean() for at in np.unique(bins)
    ]
    return float(sum(gaps))
