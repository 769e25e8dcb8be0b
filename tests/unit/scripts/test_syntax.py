"""Scripts are parsed in several threads."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mcp_optimizer.scripts.syntax import parsed

LONG = "value = 1\n" * 1_800


@pytest.fixture
def _collecting() -> Iterator[None]:
    """As in a gateway, something is told when garbage is collected, so that threads take turns in the middle."""

    def told(_phase: str, _info: object) -> None:
        return

    gc.callbacks.append(told)
    yield
    gc.callbacks.remove(told)


@pytest.mark.slow
@pytest.mark.usefixtures("_collecting")
def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(3) as threads:
        trees = list(threads.map(parsed, [LONG] * 60))
    assert [len(tree.body) for tree in trees] == [1_800] * 60
    assert warnings.filters == before
