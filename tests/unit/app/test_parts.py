"""What the settings turn off is not built, and what they select is selected."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_optimizer.app.part_options import selected_profile
from mcp_optimizer.app.parts import build_parts
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.profiles.tiers import ProfileName


@pytest.mark.parametrize("learns", [True, False])
async def test_learning_the_shapes_of_results_can_be_turned_off(learns: bool, tmp_path: Path) -> None:
    settings = Settings(learn_shapes=learns, database=str(tmp_path / "catalog.db"))
    assert (build_parts([], settings).shapes is not None) is learns


@pytest.mark.requirement("TP-8")
@pytest.mark.parametrize("profile", ProfileName)
def test_a_profile_is_selected_by_the_environment_or_by_a_flag(profile: ProfileName) -> None:
    name = profile.value.lower()
    assert selected_profile(load_settings({}, {"MCP_OPTIMIZER_TOOL_PROFILE": name})) is profile
    assert selected_profile(load_settings({"tool_profile": name}, {})) is profile
