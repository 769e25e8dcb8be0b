"""What the settings turn off is not built."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_optimizer.app.parts import build_parts
from mcp_optimizer.settings import Settings


@pytest.mark.parametrize("learns", [True, False])
async def test_learning_the_shapes_of_results_can_be_turned_off(learns: bool, tmp_path: Path) -> None:
    settings = Settings(learn_shapes=learns, database=str(tmp_path / "catalog.db"))
    assert (build_parts([], settings, has_one_client=False).shapes is not None) is learns
