"""A script that is kept under a name: what it takes, what it uses, and what it may do at worst.

Frozen values, and the rules for the names and texts that people give them. Knows neither tools nor how scripts run.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcp_optimizer.domain.hidden_text import has_hidden
from mcp_optimizer.domain.naming import SEPARATOR
from mcp_optimizer.domain.own_tools import OWN_NAMES
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.errors import InvalidRequest, quoted

SCRIPTS: Final = "scripts"
"""The server that has the stored scripts as its tools, unless a server of the user's has the name."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_A_SOURCE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class ParameterType(StrEnum):
    """The types that a parameter can have, by their names in JSON Schema."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"
    ANY = "any"

    @classmethod
    def named(cls, text: str) -> ParameterType | None:
        """The type that a person means, by its name in JSON Schema or in Python."""
        return _PYTHON.get(text) or next((one for one in cls if one.value == text), None)

    def admits(self, value: Any) -> bool:
        """Whether a JSON value has this type."""
        if isinstance(value, bool):
            return self in (ParameterType.BOOLEAN, ParameterType.ANY)
        if self is ParameterType.INTEGER:
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return self is ParameterType.ANY or isinstance(value, _VALUES[self])


_PYTHON: Final = {
    "str": ParameterType.STRING,
    "int": ParameterType.INTEGER,
    "float": ParameterType.NUMBER,
    "bool": ParameterType.BOOLEAN,
    "list": ParameterType.ARRAY,
    "dict": ParameterType.OBJECT,
}
_VALUES: Final[Mapping[ParameterType, Any]] = {
    ParameterType.STRING: str,
    ParameterType.NUMBER: int | float,
    ParameterType.BOOLEAN: bool,
    ParameterType.ARRAY: list,
    ParameterType.OBJECT: dict,
}


@dataclass(frozen=True)
class ScriptParameter:
    """A value that the caller gives. `default` is JSON; empty: the caller must give one."""

    name: str
    type: ParameterType = ParameterType.ANY
    default: str = ""

    @property
    def is_required(self) -> bool:
        return not self.default

    @property
    def schema(self) -> dict[str, Any]:
        typed = {} if self.type is ParameterType.ANY else {"type": self.type.value}
        return typed if self.is_required else {**typed, "default": json.loads(self.default)}

    def __str__(self) -> str:
        return f"{self.name}:{self.type}" + ("" if self.is_required else f"={self.default}")


@dataclass(frozen=True)
class UsedTool:
    """A tool that a script uses, as it was when the script was saved. `may_change`: the person who saved it agreed that
    the script uses it although it does not only read.
    """

    server: str
    tool: str
    definition_hash: str
    may_change: bool = False

    @property
    def name(self) -> str:
        return f"{self.server}{SEPARATOR}{self.tool}"


@dataclass(frozen=True)
class StoredScript:
    """One script. `risk`: what the tools that it may use could do at worst when it was saved."""

    name: str
    source: str
    description: str
    parameters: tuple[ScriptParameter, ...] = ()
    uses: tuple[UsedTool, ...] = ()
    risk: Risk = Risk.READ
    saved_at_ms: int = 0

    @property
    def may_change(self) -> tuple[str, ...]:
        """The tools that it may use although they do not only read."""
        return tuple(used.name for used in self.uses if used.may_change)

    @property
    def input_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {one.name: one.schema for one in self.parameters},
            "additionalProperties": False,
        }
        required = [one.name for one in self.parameters if one.is_required]
        return {**schema, "required": required} if required else schema

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all parameters: those that were given, else the defaults."""
        defaults = {one.name: json.loads(one.default) for one in self.parameters if not one.is_required}
        return {**defaults, **arguments}


def check_name(name: str) -> None:
    """Raises InvalidRequest unless this can be a script's name."""
    if not _NAME.fullmatch(name) or SEPARATOR in name:
        raise InvalidRequest(
            f"A script cannot be called {quoted(name)}: its name begins with a letter, and has at most 48 letters, "
            f"digits, '-' and '_', without '{SEPARATOR}'."
        )
    if name.casefold().replace("-", "_") in OWN_NAMES:
        raise InvalidRequest(f"A script cannot be called {quoted(name)}: the gateway has a tool of that name.")


def check_description(text: str, most: int) -> None:
    """Raises InvalidRequest unless this can describe a script: one line that a person sees as a model reads it."""
    if not text.strip():
        raise InvalidRequest("A stored script needs a description: a line that says what it is for (--description).")
    if len(text) > most:
        raise InvalidRequest(
            f"The description has {len(text):,} characters; {most:,} are allowed (limits.stored_script_description)."
        )
    if _UNPRINTABLE.search(text) or has_hidden(text):
        raise InvalidRequest("The description must be one line, without control or hidden characters.")


def check_source(text: str, most: int) -> None:
    """Raises InvalidRequest unless this text can be kept as a script. Whether it can be run is not looked at."""
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
    """A parameter as it is written on the command line: `name:type`, `name:type=default`, or only `name`."""
    declared, equals, given = text.partition("=")
    name, colon, kind = declared.partition(":")
    found = ParameterType.named(kind.strip()) if colon else ParameterType.ANY
    if found is None:
        known = ", ".join(one.value for one in ParameterType)
        raise InvalidRequest(f"The parameter {quoted(text)} has an unknown type. Types: {known}.")
    return checked_parameter(ScriptParameter(name.strip(), found, _default(text, found, given) if equals else ""))


def checked_parameter(parameter: ScriptParameter) -> ScriptParameter:
    """The same; raises InvalidRequest unless a variable of a script can have its name."""
    name = parameter.name
    if not _PARAMETER.fullmatch(name) or SEPARATOR in name:
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
        value = json.loads(given, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not JSON.") from None
    if not kind.admits(value):
        raise InvalidRequest(f"The default of the parameter {quoted(text)} is not of the type {kind}.")
    return json.dumps(value)


def _refused(constant: str) -> Any:
    raise ValueError(constant)
