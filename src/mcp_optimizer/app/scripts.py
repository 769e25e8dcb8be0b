"""Puts together what runs scripts; only where the settings want scripts, so that nothing of it is loaded otherwise."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.scripts.running import ScriptRunner


def script_runner(
    settings: Settings, gateway: Gateway, storage: Storage, *, has_one_client: bool
) -> ScriptRunner | None:
    """What runs scripts; None where there are none. Raises ConfigurationError if the extra is not installed."""
    mode = ScriptMode(settings.scripts)
    if mode is ScriptMode.OFF or settings.mode == "transparent":
        return None
    from mcp_optimizer.scripts.running import ScriptRunner
    from mcp_optimizer.scripts.suspending import WaitingScripts
    from mcp_optimizer.scripts.workers import check_installed
    from mcp_optimizer.upstream.parked import ParkedCalls, ParkingLimits

    check_installed()
    parked = ParkedCalls(ParkingLimits(seconds=settings.answer_timeout), has_one_client=has_one_client)
    return ScriptRunner(gateway, mode, settings.limits, WaitingScripts(parked, partial(_key, storage)))


async def _key(storage: Storage) -> bytes | None:
    """The key of the database, with which a later gateway recognises what this one wrote."""
    stored = await storage.use()
    return await stored.key() if stored is not None else None
