"""Whether a stored script can be called now: the tools that it uses are there, and what they were. Pure.

Called by `stored` before every call and by whoever lists the scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.domain.stored_script import StoredScript, UsedTool
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import quoted


class ScriptState(StrEnum):
    """What became of a stored script."""

    READY = "ready"
    WAITING = "waiting"
    """A server that it uses is not there now."""
    BROKEN = "broken"
    """A tool that it uses is not what it was: somebody must save it again."""
    NOT_ALLOWED = "not allowed"
    """It changes something, and scripts may only read here."""
    ELSEWHERE = "elsewhere"
    """None of the servers that it uses is configured here: it was made for other servers."""


@dataclass(frozen=True)
class ScriptStanding:
    """A script's state, why, and the tools that changed and fit as far as names and classes say."""

    state: ScriptState = ScriptState.READY
    reason: str = ""
    changed: tuple[CatalogTool, ...] = ()


def standing(
    script: StoredScript, snapshot: Snapshot, risk_of: Callable[[CatalogTool], Risk], mode: ScriptMode
) -> ScriptStanding:
    """How a script stands with the tools of a snapshot."""
    servers = {used.server for used in script.uses}
    if servers and servers.isdisjoint(snapshot.states):
        named = ", ".join(map(quoted, sorted(servers)))
        return ScriptStanding(ScriptState.ELSEWHERE, f"It uses servers that are not configured here: {named}.")
    if script.risk is not Risk.READ and mode is not ScriptMode.WRITE:
        reason = f'It can change something, and scripts may only read here (scripts = "{mode}").'
        return ScriptStanding(ScriptState.NOT_ALLOWED, reason)
    changed, missing = [], {state.name for state in snapshot.missing()}
    for used in script.uses:
        tool = _tool(snapshot, used)
        if tool is None:
            return _without(used, snapshot, is_missing=used.server in missing)
        if worse := _worse(script, used, risk_of(tool)):
            return ScriptStanding(ScriptState.BROKEN, worse)
        if tool.record.definition_hash != used.definition_hash:
            changed.append(tool)
    return ScriptStanding(changed=tuple(changed))


def _tool(snapshot: Snapshot, used: UsedTool) -> CatalogTool | None:
    position = snapshot.names.position(used.server, used.tool)
    return None if position is None else snapshot.tools[position]


def _without(used: UsedTool, snapshot: Snapshot, *, is_missing: bool) -> ScriptStanding:
    """Why a tool is not there."""
    state = snapshot.states.get(used.server)
    if state is None:
        return ScriptStanding(ScriptState.BROKEN, f"Its server {quoted(used.server)} was removed.")
    if (used.server, used.tool) in snapshot.held:
        advice = f"mcp-optimizer trust diff {used.server}"
        return ScriptStanding(ScriptState.WAITING, f"{quoted(used.name)} changed and waits for approval: {advice}.")
    if is_missing or state.status is not ServerStatus.RUNNING:
        why = f": {state.reason}" if state.reason else ""
        return ScriptStanding(ScriptState.WAITING, f"Its server {quoted(used.server)} is {state.status}{why}.")
    return ScriptStanding(ScriptState.BROKEN, f"{quoted(used.server)} has no tool {quoted(used.tool)} any more.")


def _worse(script: StoredScript, used: UsedTool, risk: Risk) -> str:
    """What to say if a tool may do more than whoever saved the script agreed to."""
    agreed = script.risk if used.may_change else Risk.READ
    if agreed.covers(risk):
        return ""
    return f"{quoted(used.name)} counts as {risk} now, and the script was saved as one that does no more than {agreed}."
