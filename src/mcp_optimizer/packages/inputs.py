"""What a server wants to be told before it can run: a key, a folder, a choice. Pure; knows no terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.packages.foreign import MOST_ITEMS, clean, described


class InputFormat(StrEnum):
    """What a value must look like."""

    TEXT = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    PATH = "filepath"


Answers = Mapping[str, tuple[str, ...]]
"""Values by the key of what was asked; several where that may be repeated."""


@dataclass(frozen=True)
class WantedInput:
    """One value. `key` is its name on the command line: `--input KEY=VALUE`."""

    key: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    format: InputFormat = InputFormat.TEXT
    minimum: float | None = None
    maximum: float | None = None
    is_list: bool = False

    def problem(self, value: str) -> str:
        """What is wrong with a value, without quoting it; empty if nothing. A reference is checked when it is used."""
        if "${" in value:
            return ""
        if "\0" in value:
            return "must not contain a null character"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.format is InputFormat.BOOLEAN and value not in ("true", "false"):
            return "must be true or false"
        return self._problem_of_number(value) if self.format is InputFormat.NUMBER else ""

    def _problem_of_number(self, value: str) -> str:
        try:
            number = float(value)
        except ValueError:
            return "must be a number"
        if not (self.minimum is None or number >= self.minimum):
            return f"must be at least {self.minimum:g}"
        if not (self.maximum is None or number <= self.maximum):
            return f"must be at most {self.maximum:g}"
        return ""


def wanted_of(key: str, said: Mapping[str, Any], *, is_required: bool = False) -> WantedInput:
    """From an input of server.json."""
    # It is written on command lines before an equals sign, and inside of the braces of a reference.
    named = re.sub(r"[^\w.-]+", "_", clean(key, "The name of an input", 150))
    kind = said.get("format")
    return WantedInput(
        key=named,
        description=described(said.get("description")) or described(said.get("title")),
        is_required=is_required or said.get("isRequired") is True,
        is_secret=said.get("isSecret") is True,
        default=_texts(said.get("default"), f"The default of {named}"),
        choices=_texts(said.get("choices"), f"A choice of {named}"),
        format=next((one for one in InputFormat if one == kind), InputFormat.TEXT),
        minimum=_number(said.get("min")),
        maximum=_number(said.get("max")),
        is_list=said.get("isRepeated") is True,
    )


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    several: Sequence[Any] = value if isinstance(value, list) else [value]
    if len(several) > MOST_ITEMS:
        raise ConfigurationError(f"{what} is one of {len(several):,}; at most {MOST_ITEMS} are allowed.")
    return tuple(clean(_plain(one), what) for one in several)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}" if isinstance(value, int | float) else value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
