"""Makes a tool of a stored script: its definition, the check of its arguments, and whether it can be called now. Pure.

A script can be called if the tools that it uses exist and are unchanged. Called by `stored` before every call and for
every listing of scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.stored_script import SCRIPTS, StoredScript, UsedTool
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.errors import InvalidRequest, listed, quoted

_HINTS: Final[Mapping[Risk, Mapping[str, bool]]] = {
    Risk.READ: {"readOnlyHint": True},
    Risk.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Risk.DESTRUCTIVE: {"readOnlyHint": False, "destructiveHint": True},
}


def free_name(configured: Iterable[str]) -> str:
    """The name of the server for stored scripts: `scripts`, unless one of the user's servers has that name."""
    taken = {name.casefold() for name in configured}
    names = (SCRIPTS, f"stored_{SCRIPTS}", *(f"stored_{SCRIPTS}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def definition_of(script: StoredScript) -> Definition:
    """The script's definition for the catalog."""
    tool = McpTool(
        name=script.name,
        description=script.description,
        inputSchema=script.input_schema,
        annotations=dict(_HINTS[script.risk]),
    )
    return Definition.of(tool)


def check_arguments(script: StoredScript, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest. Calls of directly registered tools are not checked before this."""
    taken = {one.name: one for one in script.parameters}
    for name, value in arguments.items():
        if name not in taken:
            raise InvalidRequest(
                f"{script.name} has no parameter {quoted(name)}. It has: {listed(list(taken)) or 'none'}."
            )
        if not taken[name].type.admits(value):
            raise InvalidRequest(f"The parameter {name} of {script.name} must be of the type {taken[name].type}.")
    if missing := [one.name for one in script.parameters if one.is_required and one.name not in arguments]:
        raise InvalidRequest(f"{script.name} needs {listed(missing)}.")


def advice(script: StoredScript) -> str:
    """How to repair a script that does not fit the tools any more."""
    return (
        f"Change it and save it again: mcp-optimizer script show {script.name} --source, then "
        f"mcp-optimizer script save {script.name} FILE --replace."
    )


class ScriptState(StrEnum):
    """The state of a stored script."""

    READY = "ready"
    WAITING = "waiting"
    """A server that it uses is not available now."""
    BROKEN = "broken"
    """A tool that it uses has changed: the script must be saved again."""
    NOT_ALLOWED = "not allowed"
    """It changes something, but scripts may only read at this gateway."""
    ELSEWHERE = "elsewhere"
    """None of its servers is configured at this gateway: it was made for others."""


@dataclass(frozen=True)
class ScriptStanding:
    """A script's state, the reason, and the tools that changed but still fit by name and class."""

    state: ScriptState = ScriptState.READY
    reason: str = ""
    changed: tuple[CatalogTool, ...] = ()


def standing(
    script: StoredScript, snapshot: Snapshot, risk_of: Callable[[CatalogTool], Risk], mode: ScriptMode
) -> ScriptStanding:
    """The standing of a script with the tools of a snapshot."""
    servers = {used.server for used in script.uses}
    if servers and servers.isdisjoint(snapshot.states):
        named = ", ".join(map(quoted, sorted(servers)))
        return ScriptStanding(ScriptState.ELSEWHERE, f"It uses servers that are not configured here: {named}.")
    if script.risk is not Risk.READ and mode is not ScriptMode.WRITE:
        reason = f'It can change something, and scripts may only read here (scripts = "{mode}").'
        return ScriptStanding(ScriptState.NOT_ALLOWED, reason)
    changed, missing = [], {state.name for state in snapshot.missing()}
    for used in script.uses:
        tool = _tool_of(snapshot, used)
        if tool is None:
            return _why_missing(used, snapshot, is_missing=used.server in missing)
        if worse := _why_worse(script, used, risk_of(tool)):
            return ScriptStanding(ScriptState.BROKEN, worse)
        if tool.record.definition_hash != used.definition_hash:
            changed.append(tool)
    return ScriptStanding(changed=tuple(changed))


def _tool_of(snapshot: Snapshot, used: UsedTool) -> CatalogTool | None:
    position = snapshot.names.position(used.server, used.tool)
    return None if position is None else snapshot.tools[position]


def _why_missing(used: UsedTool, snapshot: Snapshot, *, is_missing: bool) -> ScriptStanding:
    """Why a tool is missing."""
    state = snapshot.states.get(used.server)
    if state is None:
        return ScriptStanding(ScriptState.BROKEN, f"Its server {quoted(used.server)} was removed.")
    if (used.server, used.tool) in snapshot.held:
        advice = f"mcp-optimizer trust diff {used.server}"
        return ScriptStanding(ScriptState.WAITING, f"{quoted(used.name)} changed and waits for approval: {advice}.")
    if is_missing or not state.is_available:
        why = f": {state.reason}" if state.reason else ""
        return ScriptStanding(ScriptState.WAITING, f"Its server {quoted(used.server)} is {state.status}{why}.")
    return ScriptStanding(ScriptState.BROKEN, f"{quoted(used.server)} has no tool {quoted(used.tool)} any more.")


def _why_worse(script: StoredScript, used: UsedTool, risk: Risk) -> str:
    """Why a tool may now do more than was agreed to when the script was saved; "" if it may not."""
    agreed = script.risk if used.may_change else Risk.READ
    if agreed.covers(risk):
        return ""
    return f"{quoted(used.name)} counts as {risk} now, and the script was saved as one that does no more than {agreed}."
