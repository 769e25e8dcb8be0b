"""Stored scripts as commands print them, and the request to save one. Loads no script code while scripts are off."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.app.control.command_requests import SaveScriptRequest
from mcp_optimizer.domain.stored_script import StoredScript

if TYPE_CHECKING:
    from mcp_optimizer.scripts.stored import StoredScripts
    from mcp_optimizer.scripts.stored_tool import ScriptStanding

NOT_CHECKED: Final = "not checked"


def script_facts(script: StoredScript) -> dict[str, Any]:
    """Everything but its source."""
    saved = datetime.fromtimestamp(script.saved_at_ms / 1_000, UTC)
    return {
        "name": script.name,
        "description": script.description,
        "parameters": [str(one) for one in script.parameters],
        "risk": script.risk.value,
        "uses": [used.name for used in script.uses],
        "may_change": list(script.may_change),
        "saved_at": saved.isoformat(timespec="seconds"),
    }


def with_standing(script: StoredScript, found: ScriptStanding) -> dict[str, Any]:
    return {**script_facts(script), "state": found.state.value, "reason": found.reason}


async def script_rows(scripts: StoredScripts) -> list[dict[str, Any]]:
    """Every script, with its state."""
    return [with_standing(script, found) for script, found in await scripts.all()]


async def save_script(scripts: StoredScripts, request: SaveScriptRequest) -> dict[str, Any]:
    """Save a script; returns the name of the tool that now runs it."""
    from mcp_optimizer.scripts.saving import WantedScript

    wanted = WantedScript(request.name, request.source, request.description, request.parameters, request.may_change)
    saved = await scripts.save(wanted, replaces=request.replaces)
    return {**with_standing(saved, await scripts.standing(saved)), "server": scripts.server}
