"""The scripts that the check must let pass are right: each runs to its end on the demo servers."""

from __future__ import annotations

import pytest

from mcp_optimizer import Optimizer
from tests.unit.scripts.test_checking import RIGHT

CHANGING = [f"kanban.{tool}" for tool in ("update_card", "create_board", "create_card", "move_card")]


@pytest.mark.slow
async def test_the_scripts_that_pass_the_check_run() -> None:
    async with Optimizer.from_config(demo=True, database="none", encoder="none", scripts="write") as optimizer:
        failed = {}
        for one in RIGHT:
            if one.needs_dumps:
                continue
            result = await optimizer.run_script(one.text, CHANGING)
            if result.get("isError"):
                failed[one.title] = result["content"][0]["text"]
    assert failed == {}
