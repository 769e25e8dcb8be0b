"""The arguments of a call in a script, by the tool's own names. Pure. Called for every call that a script makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.validation import SchemaCheck
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.errors import quoted
from mcp_optimizer.scripts.names import Parameter, parameters_of

_MOST_NAMED = 9


class CallFailed(Exception):
    """A call failed; the script may handle it. Raised in the script as ToolError with this text."""


def as_given(item: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """One element of the list of `parallel`: an object of arguments, or the only argument."""
    return ((), item) if isinstance(item, dict) else ((item,), {})


def arguments_of(tool: CatalogTool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the tool's own names, without those that are None and stand for "not given". Raises CallFailed."""
    known: Sequence[Parameter] = parameters_of(tool)
    own = {parameter.python: parameter.own for parameter in known}
    names = set(own.values())
    first = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(first, dict) and (not known or first.keys() <= names | own.keys()):
        args, kwargs = [], first
    if len(args) > len(known):
        raise CallFailed(f"{tool.record.name} takes {len(known)} arguments, not {len(args)}: {_few(own)}.")
    arguments = {name if name in names else own.get(name, name): value for name, value in kwargs.items()}
    for parameter, value in zip(known, args, strict=False):
        if parameter.own in arguments:
            raise CallFailed(f"{tool.record.name} got {quoted(parameter.python)} twice.")
        arguments[parameter.own] = value
    if None in arguments.values():
        return _without_nothing(arguments, tool.record.definition, known)
    return arguments


def _without_nothing(
    arguments: Mapping[str, Any], definition: Definition, known: Sequence[Parameter]
) -> dict[str, Any]:
    optional = {parameter.own for parameter in known if not parameter.is_required}
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional or _takes_null(definition, name)
    }


@lru_cache(maxsize=1_024)
def _takes_null(definition: Definition, name: str) -> bool:
    """Whether a parameter may be null, as far as that can be told; for a tool null may mean something of its own."""
    schema = definition.details.input_schema
    of_one = {**schema, "properties": {name: properties_of(schema)[name]}, "required": []}
    return SchemaCheck(of_one).admits({name: None})


def _few(names: Mapping[str, str]) -> str:
    return ", ".join(list(names)[:_MOST_NAMED]) or "none"
