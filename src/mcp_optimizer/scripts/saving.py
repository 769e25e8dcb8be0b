"""Makes a stored script from a person's input, or reports its mistakes, before anything is kept. Pure.

Names and texts must look the same to a person as to a model. The source is parsed but not run: it shows which tools it
names, and which names it leaves to its caller. Called by `stored`, which knows where tools come from and where scripts
are kept.
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.hidden_text import has_hidden
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.naming import SEPARATOR
from mcp_optimizer.domain.own_tools import OWN_NAMES, ScriptMode
from mcp_optimizer.domain.stored_script import ParameterType, ScriptParameter, StoredScript, UsedTool
from mcp_optimizer.errors import InvalidRequest, RequestError, UpstreamError, listed, quoted
from mcp_optimizer.gateway import resolving
from mcp_optimizer.limits import Limits
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.scripts.names import HELPERS, Toolbox, parameters_of
from mcp_optimizer.scripts.problems import near_names
from mcp_optimizer.scripts.syntax import bound_names, parsed

_SCRIPT_NAME = regex(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_PARAMETER_NAME = regex(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_UNPRINTABLE = regex(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_A_SOURCE = regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_name(name: str) -> None:
    """Raises InvalidRequest unless this is a valid script name."""
    if not _SCRIPT_NAME.fullmatch(name) or SEPARATOR in name:
        raise InvalidRequest(
            f"A script cannot be called {quoted(name)}: its name begins with a letter, and has at most 48 letters, "
            f"digits, '-' and '_', without '{SEPARATOR}'."
        )
    if name.casefold().replace("-", "_") in OWN_NAMES:
        raise InvalidRequest(f"A script cannot be called {quoted(name)}: the gateway has a tool of that name.")


def check_description(text: str, most: int) -> None:
    """Raises InvalidRequest unless a description is valid: one line that looks the same to a person as to a model."""
    if not text.strip():
        raise InvalidRequest("A stored script needs a description: a line that says what it is for (--description).")
    if len(text) > most:
        raise InvalidRequest(
            f"The description has {len(text):,} characters; {most:,} are allowed (limits.stored_script_description)."
        )
    if _UNPRINTABLE.search(text) or has_hidden(text):
        raise InvalidRequest("The description must be one line, without control or hidden characters.")


def check_source(text: str, most: int) -> None:
    """Raises InvalidRequest unless this text can be kept as a script. Does not check whether it can run."""
    if not text.strip():
        raise InvalidRequest("The script is empty.")
    if len(text) > most:
        raise InvalidRequest(f"The script has {len(text):,} characters; {most:,} are allowed.")
    if (found := _NOT_IN_A_SOURCE.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidRequest(f"Line {line} of the script has a control character ({ord(found[0]):#06x}).")
    if has_hidden(text):
        raise InvalidRequest("The script has hidden characters: what it does is not what a person sees.")


def parameter_of(text: str) -> ScriptParameter:
    """Reads a parameter as written on the command line: `name:type`, `name:type=default`, or only `name`."""
    declared, equals, given = text.partition("=")
    name, colon, kind = declared.partition(":")
    found = ParameterType.named(kind.strip()) if colon else ParameterType.ANY
    if found is None:
        known = ", ".join(one.value for one in ParameterType)
        raise InvalidRequest(f"The parameter {quoted(text)} has an unknown type. Types: {known}.")
    return checked_parameter(ScriptParameter(name.strip(), found, _default(text, found, given) if equals else ""))


def checked_parameter(parameter: ScriptParameter) -> ScriptParameter:
    """The same parameter; raises InvalidRequest unless its name can be a variable of a script."""
    name = parameter.name
    if not _PARAMETER_NAME.fullmatch(name) or SEPARATOR in name:
        raise InvalidRequest(
            f"A parameter cannot be called {quoted(name)}: it becomes a variable of the script. Its name begins with a "
            "letter, and has at most 64 letters, digits and '_'."
        )
    if keyword.iskeyword(name):
        raise InvalidRequest(f"A parameter cannot be called {quoted(name)}: that is a word of Python.")
    return parameter


def _default(text: str, kind: ParameterType, given: str) -> str:
    """The default as JSON. A text needs no quotes."""
    if kind is ParameterType.STRING:
        return json.dumps(given)
    try:
        value = json.loads(given, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not JSON.") from None
    if not kind.admits(value):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not of the type {kind}.")
    return json.dumps(value)


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


_CALLING = frozenset({"call", "parallel"})
_NOT_TAKEN = frozenset(dir(builtins))


@dataclass(frozen=True)
class ReadSource:
    """`attributes`: pairs `a.b` where the script does not bind `a`; `named`: texts passed to `call` and `parallel`;
    each with its first line. `free`: names that it reads and never binds. `passed`: for a free name, a call and the
    keyword to which it is passed, if there is one. `names`: every name in it.
    """

    attributes: Mapping[tuple[str, str], int]
    named: Mapping[str, int]
    free: Mapping[str, int]
    passed: Mapping[str, tuple[tuple[str, str], str]]
    names: frozenset[str]


def read_source(source: str) -> ReadSource:
    """Raises InvalidRequest, with the line, if the source is not valid Python."""
    nodes = list(ast.walk(parsed(source)))
    bound = set(bound_names(nodes))
    free: dict[str, int] = {}
    attributes: dict[tuple[str, str], int] = {}
    named: dict[str, int] = {}
    passed: dict[str, tuple[tuple[str, str], str]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound | _NOT_TAKEN:
            free.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in bound:
            attributes.setdefault((node.value.id, node.attr), node.lineno)
        elif isinstance(node, ast.Call):
            if (text := _tool_named_by(node)) is not None:
                named.setdefault(text, node.lineno)
            called = _attribute_names(node.func)
            for given in node.keywords:
                if called is not None and given.arg is not None and isinstance(given.value, ast.Name):
                    passed.setdefault(given.value.id, (called, given.arg))
    mentioned = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return ReadSource(attributes, named, free, {name: at for name, at in passed.items() if name in free}, mentioned)


def _tool_named_by(node: ast.Call) -> str | None:
    """The tool name in `call("...")` or `parallel("...")`."""
    is_helper = isinstance(node.func, ast.Name) and node.func.id in _CALLING
    first = node.args[0] if is_helper and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _attribute_names(function: ast.expr) -> tuple[str, str] | None:
    """The two names of `server.tool`."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id, function.attr
    return None


_MOST_SHOWN = 60


@dataclass(frozen=True)
class WantedScript:
    """A person's input. `parameters` as on the command line; None: the free names of the source."""

    name: str
    source: str
    description: str
    parameters: tuple[str, ...] | None = None
    may_change: tuple[str, ...] = ()


@dataclass(frozen=True)
class AvailableTools:
    """The tools that exist, their risk classes, and what scripts may do at all."""

    snapshot: Snapshot
    toolbox: Toolbox
    risk_of: Callable[[CatalogTool], Risk]
    mode: ScriptMode
    limits: Limits
    own_server: str
    """The server that provides the stored scripts."""


def prepared(wanted: WantedScript, around: AvailableTools) -> StoredScript:
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


def _used(source: ReadSource, around: AvailableTools) -> Iterator[tuple[CatalogTool, int]]:
    """Every tool that the source names, with the first line that names it."""
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


def _meant(text: str, around: AvailableTools) -> CatalogTool:
    """The tool that a text means, in a script or in a person's list of permitted tools."""
    tool = around.toolbox.named(text) or resolving.meant(around.snapshot, text)
    if tool.server == around.own_server:
        raise InvalidRequest(f"{quoted(text)} is a stored script, and a script cannot call stored scripts.")
    return tool


def _check_changes(
    used: Iterable[tuple[CatalogTool, int]], changing: Sequence[CatalogTool], around: AvailableTools
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


def _parameters(wanted: WantedScript, source: ReadSource, around: AvailableTools) -> tuple[ScriptParameter, ...]:
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


def _derived(name: str, line: int, source: ReadSource, around: AvailableTools) -> ScriptParameter:
    """A parameter for a free name. Its type is that of the tool parameter to which it is passed."""
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
