"""A stored script: its name, its parameters, the tools it uses, and the worst it may do.

Frozen values; knows neither tools nor how scripts run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.naming import SEPARATOR

SCRIPTS: Final = "scripts"
"""The server that provides the stored scripts as tools, unless one of the user's servers has this name."""


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
        """The type that a person names in JSON Schema's or Python's terms; None if there is none."""
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
    """A value that the caller provides. `default` is JSON; empty: the caller must provide a value."""

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
    """A tool that a script uses, as it was when the script was saved. `may_change`: the person who saved the script
    agreed to this tool although it does not only read.
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
    """One script. `risk`: the highest risk class, at the time of saving, of the tools that it may use."""

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
        """The values of all parameters: given ones, otherwise defaults."""
        defaults = {one.name: json.loads(one.default) for one in self.parameters if not one.is_required}
        return {**defaults, **arguments}
