"""Makes a stored script of what a person gives, or says what is wrong with it, before anything is kept. Pure.

Called by `stored`, which knows where the tools come from and where the script goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.script_mode import ScriptMode
from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter, StoredScript, UsedTool
from mcp_optimizer.errors import InvalidRequest, RequestError, UpstreamError, listed, quoted
from mcp_optimizer.gateway import resolving
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.names import HELPERS, Toolbox, parameters_of
from mcp_optimizer.scripts.problems import near_names
from mcp_optimizer.scripts.stored_source import ReadSource, read_source
from mcp_optimizer.scripts.stored_texts import (
    check_description,
    check_name,
    check_source,
    checked_parameter,
    parameter_of,
)

_MOST_SHOWN = 60


@dataclass(frozen=True)
class WantedScript:
    """What a person gives. `parameters` as on the command line; None: those that the source leaves open."""

    name: str
    source: str
    description: str
    parameters: tuple[str, ...] | None = None
    may_change: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolsAtHand:
    """What a script is looked at with: the tools that there are, their classes, and what scripts may do at all."""

    snapshot: Snapshot
    toolbox: Toolbox
    risk_of: Callable[[CatalogTool], Risk]
    mode: ScriptMode
    limits: Limits
    own_server: str
    """The server that has the stored scripts."""


def prepared(wanted: WantedScript, around: ToolsAtHand) -> StoredScript:
    """The script, ready to be kept; raises InvalidRequest with what to change."""
    check_name(wanted.name)
    check_description(wanted.description, around.limits.stored_script_description)
    check_source(wanted.source, around.limits.script_characters)
    source = read_source(wanted.source)
    used = list(_used(source, around))
    changing = [_meant(text, around) for text in wanted.may_change]
    parameters = _parameters(wanted, source, around)
    _check_changes(used, changing, around)
    tools = {tool.key: tool for tool in (*(tool for tool, _ in used), *changing)}
    agreed = {tool.key for tool in changing if around.risk_of(tool) is not Risk.READ}
    uses = tuple(
        UsedTool(*key, tool.record.definition_hash, may_change=key in agreed) for key, tool in sorted(tools.items())
    )
    risk = max((around.risk_of(tools[key]) for key in agreed), key=lambda risk: risk.rank, default=Risk.READ)
    return StoredScript(wanted.name, wanted.source, wanted.description.strip(), parameters, uses, risk)


def _used(source: ReadSource, around: ToolsAtHand) -> Iterator[tuple[CatalogTool, int]]:
    """Every tool that the source names, and the first line that does."""
    for (server, name), line in source.attributes.items():
        tools = around.toolbox.servers.get(server)
        if tools is None:
            continue
        if name not in tools:
            raise InvalidRequest(f"Line {line}: {server} has no tool {quoted(name)}.{_nearest(name, tools)}")
        yield tools[name], line
    for text, line in source.named.items():
        try:
            yield _meant(text, around), line
        except (RequestError, UpstreamError) as error:
            raise InvalidRequest(f"Line {line}: {error}") from None


def _meant(text: str, around: ToolsAtHand) -> CatalogTool:
    """The tool that a text means in a script, or to whoever permits it to change something."""
    tool = around.toolbox.named(text) or resolving.meant(around.snapshot, text)
    if tool.server == around.own_server:
        raise InvalidRequest(f"{quoted(text)} is a stored script, and a script cannot call stored scripts.")
    return tool


def _check_changes(
    used: Iterable[tuple[CatalogTool, int]], changing: Sequence[CatalogTool], around: ToolsAtHand
) -> None:
    agreed = {tool.key for tool in changing}
    for tool, line in used:
        risk = around.risk_of(tool)
        if risk is not Risk.READ and tool.key not in agreed:
            raise InvalidRequest(
                f"Line {line}: {quoted(tool.name)} does not only read: it counts as {risk}. If the script may use it, "
                f"say so with --may-change {tool.name}."
            )
    changes = [tool.name for tool in changing if around.risk_of(tool) is not Risk.READ]
    if changes and around.mode is not ScriptMode.WRITE:
        raise InvalidRequest(
            f"Scripts may only read here (scripts = {around.mode}), and {listed(changes)} can change something. "
            'With the setting scripts = "write" such a script can be saved.'
        )


def _parameters(wanted: WantedScript, source: ReadSource, around: ToolsAtHand) -> tuple[ScriptParameter, ...]:
    known = HELPERS | around.toolbox.servers.keys()
    left = {name: line for name, line in source.free.items() if name not in known}
    if wanted.parameters is None:
        found = tuple(_derived(name, line, source, around) for name, line in left.items())
    else:
        found = tuple(parameter_of(text) for text in wanted.parameters)
        _check_given(found, left, source)
    if clash := [one.name for one in found if one.name in known]:
        raise InvalidRequest(f"A parameter cannot be called {quoted(clash[0])}: scripts have that name for a server.")
    if len(found) > (most := around.limits.stored_script_parameters):
        raise InvalidRequest(
            f"The script has {len(found)} parameters ({listed([one.name for one in found], 5)}); {most} are allowed "
            "(limits.stored_script_parameters)."
        )
    return found


def _check_given(found: Sequence[ScriptParameter], left: Mapping[str, int], source: ReadSource) -> None:
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"A parameter is given twice: {listed(names)}.")
    for one in names:
        if one not in source.names:
            raise InvalidRequest(f"The script does not use its parameter {quoted(one)}.")
    for name, line in left.items():
        if name not in names:
            raise InvalidRequest(
                f"Line {line}: {quoted(name)} is neither defined, nor a server, nor a parameter. If the caller gives "
                f"it: --param {name[:_MOST_SHOWN]}:string (or another type)."
            )


def _derived(name: str, line: int, source: ReadSource, around: ToolsAtHand) -> ScriptParameter:
    """A name that the script leaves open. Its type is that of the tool's parameter that it is passed as."""
    if any(owner == name for owner, _ in source.attributes):
        raise InvalidRequest(
            f"Line {line}: there is no server {quoted(name)}.{_nearest(name, around.toolbox.servers)} If it is a value "
            f"that the caller gives: --param {name[:_MOST_SHOWN]}:string (or another type)."
        )
    called = source.passed.get(name)
    tool = around.toolbox.tool(*called[0]) if called is not None else None
    if called is None or tool is None:
        return checked_parameter(ScriptParameter(name))
    own = next((one.own for one in parameters_of(tool) if one.python == called[1]), "")
    schema = properties_of(tool.record.details.input_schema).get(own)
    said = schema.get("type") if isinstance(schema, Mapping) else None
    kind = ParameterType.named(said) if isinstance(said, str) else None
    return checked_parameter(ScriptParameter(name, kind or ParameterType.ANY))


def _nearest(name: str, names: Iterable[str]) -> str:
    near = near_names(name, names, 3, 0.6)
    return f" Nearest: {listed(near)}." if near else ""
