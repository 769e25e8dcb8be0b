"""A stored script as a tool: its definition, its server's name, the check of its arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.stored_script import SCRIPTS, StoredScript
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.errors import InvalidRequest, listed, quoted

_HINTS: Final[Mapping[Risk, Mapping[str, bool]]] = {
    Risk.READ: {"readOnlyHint": True},
    Risk.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Risk.DESTRUCTIVE: {"readOnlyHint": False, "destructiveHint": True},
}


def free_name(configured: Iterable[str]) -> str:
    """The server that has the scripts: `scripts`, unless a server of the user's is called that."""
    taken = {name.casefold() for name in configured}
    names = (SCRIPTS, f"stored_{SCRIPTS}", *(f"stored_{SCRIPTS}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def definition_of(script: StoredScript) -> Definition:
    """As the catalog has it."""
    tool = McpTool(
        name=script.name,
        description=script.description,
        inputSchema=script.input_schema,
        annotations=dict(_HINTS[script.risk]),
    )
    return Definition.of(tool)


def check_arguments(script: StoredScript, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest; callers of registered tools are not checked before."""
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
    """What to do about a script that does not fit any more."""
    return (
        f"Change it and save it again: mcp-optimizer script show {script.name} --source, then "
        f"mcp-optimizer script save {script.name} FILE --replace."
    )
