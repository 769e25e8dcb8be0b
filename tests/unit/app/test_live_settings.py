"""Which settings take effect while the gateway runs."""

from __future__ import annotations

from mcp_optimizer.app.reloading import LIVE, NEEDS_RESTART, differing
from mcp_optimizer.config.settings import Settings


def test_every_setting_takes_effect_at_once_or_needs_a_restart_and_none_does_both() -> None:
    assert set(Settings.model_fields) == LIVE | NEEDS_RESTART
    assert not LIVE & NEEDS_RESTART


def test_settings_differ_by_their_values() -> None:
    assert differing(Settings(), Settings()) == frozenset()
    assert differing(Settings(find_limit=7, servers="a"), Settings()) == {"find_limit", "servers"}
