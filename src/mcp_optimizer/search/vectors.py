"""The vectors of a catalog, and how near each is to a query. With numpy.

Exact up to some twenty thousand tools. Beyond that a first pass over the directions in which the vectors differ
most, a quarter of all, finds the candidates; these are then measured exactly. Never changes after it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcp_optimizer.search.lexical import Floats

EXACT_UP_TO = 20_000
_DIRECTIONS = 96
_CANDIDATES = 2_000
_SAMPLE = 20_000


class VectorIndex:
    """Unit vectors by position; a tool without one (None) is `missing` and gets zero."""

    def __init__(self, vectors: Sequence[Floats | None]) -> None:
        width = next((len(vector) for vector in vectors if vector is not None), 0)
        self.missing = np.array([vector is None for vector in vectors], dtype=np.bool_)
        self._vectors: NDArray[Any] | None = _stacked(vectors, width) if width else None
        self._directions: Floats | None = None
        self._coarse: Floats | None = None
        if self._vectors is not None and len(vectors) > EXACT_UP_TO:
            self._prepare(self._vectors)

    @property
    def is_empty(self) -> bool:
        return self._vectors is None

    def rows(self, count: int) -> list[Floats | None]:
        """The vectors as they are held here, without copies; all None in an index of `count` tools without any."""
        if self._vectors is None:
            return [None] * count
        return [None if missing else row for missing, row in zip(self.missing, self._vectors, strict=True)]

    def _prepare(self, vectors: Floats) -> None:
        step = max(1, len(vectors) // _SAMPLE)
        sample = vectors[::step]
        # Not centred: cosines are sums over all directions, the common one included.
        _, directions = np.linalg.eigh(sample.T @ sample)
        self._directions = np.ascontiguousarray(directions[:, -_DIRECTIONS:], dtype=np.float32)
        self._coarse = vectors @ self._directions
        # Only candidates are read from now on: half the memory is exact enough for them.
        self._vectors = vectors.astype(np.float16)

    def cosines(self, queries: Floats) -> Floats:
        """Queries x tools."""
        if self._vectors is None:
            return np.zeros((len(queries), len(self.missing)), dtype=np.float32)
        if self._directions is None or self._coarse is None:
            return np.asarray(queries @ self._vectors.T, dtype=np.float32)
        near = np.asarray((queries @ self._directions) @ self._coarse.T, dtype=np.float32)
        for row, query in zip(near, queries, strict=True):
            count = min(_CANDIDATES, len(row))
            candidates = np.argpartition(-row, count - 1)[:count]
            row[candidates] = self._vectors[candidates].astype(np.float32) @ query
        return near


def _stacked(vectors: Sequence[Floats | None], width: int) -> Floats:
    """One row a tool, zeros where it has none. Row by row: numpy's own way holds the interpreter until all are done.

    Always of single precision: rows that come from an index of many tools are of half, and calculate ten times slower.
    """
    rows = np.zeros((len(vectors), width), dtype=np.float32)
    for position, vector in enumerate(vectors):
        if vector is not None:
            rows[position] = vector
    return rows
