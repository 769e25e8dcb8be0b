"""Holds the vectors of a catalog and computes how near each is to a query, with numpy. Called by the engine.

Exact up to four thousand tools. Beyond that, a first pass over the quarter of the directions in which the vectors
differ most finds candidates, which are then measured exactly. An index never changes after it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcp_optimizer.runtime.lazy_numpy import np
from mcp_optimizer.search.lexical import Floats, Integers, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXACT_UP_TO = 4_000
_DIRECTIONS = 96
_LEAST_CANDIDATES = 250
_ONE_IN = 100
"""One tool in this many is a candidate, and at least `_LEAST_CANDIDATES` are."""

_SAMPLE = 20_000


class VectorIndex:
    """Unit vectors by position. A tool without a vector (None) is `missing`, and its cosine is zero."""

    def __init__(self, vectors: Sequence[Vector | None]) -> None:
        width = next((len(numbers(vector)) for vector in vectors if vector is not None), 0)
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
        """The vectors, not copied, or None where missing; `count` times None if the index has no vectors."""
        if self._vectors is None:
            return [None] * count
        return [None if missing else row for missing, row in zip(self.missing, self._vectors, strict=True)]

    def row(self, position: int) -> Floats | None:
        """The vector of one tool, not copied, or None if it is missing."""
        if self._vectors is None or self.missing[position]:
            return None
        found: Floats = self._vectors[position]
        return found

    def some(self, positions: Integers) -> VectorPart:
        """The vectors of some tools, which are not copied."""
        return VectorPart(self, positions)

    def at(self, positions: Integers) -> Floats | None:
        """The vectors of these tools, a row each; None if the index has no vectors."""
        return None if self._vectors is None else self._vectors[positions].astype(np.float32)

    def _prepare(self, vectors: Floats) -> None:
        step = max(1, len(vectors) // _SAMPLE)
        sample = vectors[::step]
        # On some processors a matrix product warns of invalid values where there are none.
        with np.errstate(all="ignore"):
            # Not centred: cosines are sums over all directions, including the common one.
            _, directions = np.linalg.eigh(sample.T @ sample)
            self._directions = np.ascontiguousarray(directions[:, -_DIRECTIONS:], dtype=np.float32)
            self._coarse = vectors @ self._directions
        # From now on only candidates are read; half precision is exact enough for them and saves half the memory.
        self._vectors = vectors.astype(np.float16)

    def cosines(self, queries: Floats) -> Floats:
        """The cosines, queries x tools."""
        if self._vectors is None:
            return np.zeros((len(queries), len(self.missing)), dtype=np.float32)
        if self._directions is None or self._coarse is None:
            return _products(queries, self._vectors)
        near = _products(_products(queries, self._directions.T), self._coarse)
        for row, query in zip(near, queries, strict=True):
            count = min(max(_LEAST_CANDIDATES, len(row) // _ONE_IN), len(row))
            # Cheaper than `argpartition`, and the rows are then read in order.
            candidates = np.flatnonzero(row >= np.partition(row, len(row) - count)[len(row) - count])
            row[candidates] = _products(query[None], self._vectors[candidates].astype(np.float32))[0]
        return near


class VectorPart:
    """Some vectors of an index, by their positions among themselves: exact, because callers have few tools."""

    def __init__(self, whole: VectorIndex, positions: Integers) -> None:
        self._whole = whole
        self._positions = positions
        self.missing = np.zeros(0, dtype=np.bool_) if whole.is_empty else whole.missing[positions]

    def row(self, position: int) -> Floats | None:
        """The vector of one tool, or None if it is missing."""
        return self._whole.row(int(self._positions[position]))

    def rows(self, count: int) -> list[Floats | None]:
        """The vectors, or None where missing."""
        return [self.row(position) for position in range(count)]

    def cosines(self, queries: Floats) -> Floats:
        """The cosines, queries x tools."""
        vectors = self._whole.at(self._positions)
        if vectors is None:
            return np.zeros((len(queries), len(self.missing)), dtype=np.float32)
        return _products(queries, vectors)


def _products(queries: Floats, vectors: NDArray[Any]) -> Floats:
    """The dot products, queries x vectors, in this thread alone.

    The `@` operator would start a thread per core, and threads spin while they wait for each other: on a busy machine,
    that takes 8 ms instead of 1 for 10,000 tools (`benchmarks/results/search_speed.md`).
    """
    return np.asarray(np.einsum("qd,td->qt", queries, vectors), dtype=np.float32)


def numbers(vector: Vector) -> Floats:
    """A vector, which may be bytes, as an array."""
    return np.frombuffer(vector, dtype="<f4") if isinstance(vector, bytes) else vector


def _stacked(vectors: Sequence[Vector | None], width: int) -> Floats:
    """One row per tool; zeros for a tool without a vector. Filled row by row, because numpy's own stacking holds the
    interpreter until it is done.

    Always in single precision: rows of a large index have half precision, which computes ten times slower.
    """
    rows = np.zeros((len(vectors), width), dtype=np.float32)
    for position, vector in enumerate(vectors):
        if vector is not None:
            rows[position] = numbers(vector)
    return rows
