"""Puts together what runs scripts; only where the settings want scripts, so that nothing of it is loaded otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.scripts.running import ScriptRunner


def script_runner(settings: Settings, gateway: Gateway) -> ScriptRunner | None:
    """What runs scripts; None where there are none. Raises ConfigurationError if the extra is not installed."""
    mode = ScriptMode(settings.scripts)
    if mode is ScriptMode.OFF or settings.mode == "transparent":
        return None
    from mcp_optimizer.scripts.running import ScriptRunner
    from mcp_optimizer.scripts.workers import check_installed

    check_installed()
    return ScriptRunner(gateway, mode, settings.limits)
