"""When a gateway on stdio may answer before it is loaded."""

from __future__ import annotations

import pytest

from mcp_optimizer import load_settings
from mcp_optimizer.cli.first_answers import lists_only_own_tools


@pytest.mark.parametrize(
    "chosen", [{"mode": "transparent"}, {"tool_profile": "minimal"}, {"client_profiles": {"cursor": "full"}}]
)
def test_nothing_is_listed_early_that_depends_on_the_servers_or_the_client(chosen: dict[str, object]) -> None:
    assert not lists_only_own_tools(load_settings({"demo": True, **chosen}))


@pytest.mark.parametrize("chosen", [{}, {"split_calls": True}, {"scripts": "read"}, {"detail": "schema"}])
def test_our_own_tools_are_the_same_for_everybody(chosen: dict[str, object]) -> None:
    assert lists_only_own_tools(load_settings({"demo": True, **chosen}))
