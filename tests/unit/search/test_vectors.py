"""Vector search is exact in small catalogs and practically exact in large ones."""

from __future__ import annotations

import numpy as np
import pytest

from mcp_optimizer.search import vectors as module
from mcp_optimizer.search.lexical import Floats
from mcp_optimizer.search.vectors import EXACT_UP_TO, VectorIndex


def unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def clustered(count: int, queries: int, width: int = 128) -> tuple[Floats, Floats]:
    """Vectors in clusters, like tools, whose dimensions matter less and less, like an encoder's, and queries nearby."""
    random = np.random.default_rng(7)
    scale = (1 + np.arange(width, dtype=np.float32)) ** -0.5
    centres = random.standard_normal((count // 40 + 1, width), dtype=np.float32) * scale
    chosen = random.integers(0, len(centres), count)
    tools = unit(centres[chosen] + 0.6 * random.standard_normal((count, width), dtype=np.float32) * scale)
    near = tools[random.integers(0, count, queries)]
    spread = 0.3 * scale * random.standard_normal((queries, width), dtype=np.float32) / np.linalg.norm(scale)
    return tools, unit(near + spread)


def recall_at_10(found: Floats, exact: Floats) -> float:
    nearest = [np.argpartition(-cosines, 10, axis=1)[:, :10].tolist() for cosines in (found, exact)]
    return float(np.mean([len(set(one) & set(other)) / 10 for one, other in zip(*nearest, strict=True)]))


@pytest.mark.parametrize("count", [1, 2, 500])
def test_few_vectors_are_measured_exactly(count: int) -> None:
    tools, queries = clustered(count, 5)
    found = VectorIndex(list(tools)).cosines(queries)
    assert found.shape == (5, count)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, queries @ tools.T, atol=1e-6)


@pytest.mark.slow
def test_past_the_limit_the_nearest_ten_are_those_of_exact_search() -> None:
    tools, queries = clustered(25_000, 30, width=192)
    assert len(tools) > EXACT_UP_TO
    found, exact = VectorIndex(list(tools)).cosines(queries), queries @ tools.T
    assert recall_at_10(found, exact) >= 0.99
    # The cosines of the best tools come from their whole vectors, not from the approximation.
    best = np.argpartition(-exact, 10, axis=1)[:, :10]
    np.testing.assert_allclose(
        np.take_along_axis(found, best, axis=1), np.take_along_axis(exact, best, axis=1), atol=2e-3
    )


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("count", [11, 100, 2_000, 2_001, 3_000])
def test_the_limit_can_lie_anywhere(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_UP_TO", 10)
    tools, queries = clustered(count, 20)
    assert recall_at_10(VectorIndex(list(tools)).cosines(queries), queries @ tools.T) >= 0.99


def test_narrow_vectors_can_be_many_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_UP_TO", 10)
    tools = unit(np.random.default_rng(1).standard_normal((300, 8), dtype=np.float32))
    assert recall_at_10(VectorIndex(list(tools)).cosines(tools[:20]), tools[:20] @ tools.T) >= 0.99


@pytest.mark.parametrize("limit", [10, EXACT_UP_TO])
def test_a_tool_without_a_vector_is_missing_and_near_to_nothing(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_UP_TO", limit)
    tools, queries = clustered(60, 5)
    without = {0, 7, 59}
    index = VectorIndex([None if at in without else vector for at, vector in enumerate(tools)])
    assert not index.is_empty
    assert set(np.flatnonzero(index.missing).tolist()) == without
    found = index.cosines(queries)
    assert np.all(found[:, sorted(without)] == 0)
    rest = ~index.missing
    np.testing.assert_allclose(found[:, rest], (queries @ tools.T)[:, rest], atol=2e-3)


@pytest.mark.parametrize("count", [0, 3])
def test_without_a_single_vector_an_index_is_empty(count: int) -> None:
    index = VectorIndex([None] * count)
    assert index.is_empty
    assert index.missing.tolist() == [True] * count
    assert index.cosines(np.ones((2, 4), dtype=np.float32)).tolist() == [[0.0] * count] * 2


def test_a_tool_whose_vector_is_zero_breaks_nothing() -> None:
    index = VectorIndex([np.zeros(3, dtype=np.float32), np.array([1, 0, 0], dtype=np.float32)])
    assert not index.missing.any()
    assert index.cosines(np.array([[1, 0, 0]], dtype=np.float32)).tolist() == [[0.0, 1.0]]


def test_what_the_index_holds_can_be_read_back_without_a_copy() -> None:
    one, other = np.eye(2, dtype=np.float32)
    first, missing, last = VectorIndex([one, None, other]).rows(3)
    assert missing is None
    assert first is not None
    assert last is not None
    assert first.tolist() == one.tolist()
    assert last.tolist() == other.tolist()
    assert first.base is last.base
    assert VectorIndex([]).rows(2) == [None, None]
