"""A server that is about to be added: its command or address with gaps, and the inputs that fill them. Pure.

`entry_of` makes the entry of the server file. Texts from registries and bundles enter only through `untrusted_text`;
the user's own answers may refer to variables and secrets. Does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from mcp_optimizer.config.packages.untrusted_text import MOST_ITEMS, VARIABLE, clean, described
from mcp_optimizer.errors import ConfigurationError


class InputFormat(StrEnum):
    """The form that a value must have."""

    TEXT = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    PATH = "filepath"


Answers = Mapping[str, tuple[str, ...]]
"""Values by input key; several if the input may be repeated."""


@dataclass(frozen=True)
class WantedInput:
    """One input. `key` is its name on the command line: `--input KEY=VALUE`."""

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
        """What is wrong with a value, without quoting it; empty if nothing. References are checked when used."""
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
    """Made from an input of server.json."""
    # The key appears on command lines before an equals sign, and inside the braces of a reference.
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


@dataclass(frozen=True)
class Gap:
    """The place of an answer."""

    key: str


Pieces = tuple[str | Gap, ...]
"""A text with gaps. If not all its gaps are filled, it is left out with everything around it."""


@dataclass(frozen=True)
class Argument:
    """Words of a command: a value, with an optional flag before it. A switch is only its flag, if the value is true."""

    value: Pieces = ()
    flag: str = ""
    is_switch: bool = False


@dataclass(frozen=True)
class Draft:
    """A command with arguments, or an address, whose `transport` is empty if it must be detected.

    `env_at`: the position of a container's options that pass variables on.
    """

    name: str
    command: str = ""
    args: tuple[Argument, ...] = ()
    env: Mapping[str, Pieces] = field(default_factory=dict)
    url: Pieces = ()
    headers: Mapping[str, Pieces] = field(default_factory=dict)
    transport: str = ""
    wanted: Mapping[str, WantedInput] = field(default_factory=dict)
    env_at: int | None = None
    notes: tuple[str, ...] = ()
    description: str = ""
    is_foreign: bool = False
    """Whether a third party chose what runs, so that the user should look at it first."""

    def with_values(self, env: Mapping[str, str], headers: Mapping[str, str]) -> Draft:
        """Adds variables and headers that the user chose, which replace those of the same name."""
        if self.url and env:
            raise ConfigurationError("A server at an address has no environment; use --header.")
        if headers and not self.url:
            raise ConfigurationError("A server that is a process has no headers; use --env.")
        texts = {name: (value,) for name, value in env.items()}
        ours = {name.lower() for name in headers}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ours}
        changed = replace(self, env={**self.env, **texts}, headers={**kept, **{k: (v,) for k, v in headers.items()}})
        return changed.without_unused()

    def without_unused(self) -> Draft:
        """Keeps only inputs that fill a gap."""
        used = set(self.gaps())
        return replace(self, wanted={key: one for key, one in self.wanted.items() if key in used})

    def gaps(self) -> Iterator[str]:
        texts = [*(argument.value for argument in self.args), *self.env.values(), self.url, *self.headers.values()]
        yield from (piece.key for text in texts for piece in text if isinstance(piece, Gap))

    def missing(self, answers: Answers) -> list[WantedInput]:
        """The required inputs without an answer."""
        return [one for one in self.wanted.values() if one.is_required and not answers.get(one.key)]

    def with_defaults(self, answers: Answers) -> dict[str, tuple[str, ...]]:
        """The answers, and defaults for inputs without one."""
        defaults = {key: one.default for key, one in self.wanted.items() if one.default}
        return {**defaults, **{key: value for key, value in answers.items() if value}}


def word(text: str) -> Argument:
    return Argument((text,))


def words(texts: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(word(text) for text in texts)


def entry_of(draft: Draft, answers: Answers) -> dict[str, Any]:
    """The entry of the server file. All required inputs must have answers."""
    if draft.url:
        url = _filled(draft.url, answers)
        if not url:
            raise ConfigurationError(f"The address of {draft.name} needs {', '.join(dict.fromkeys(draft.gaps()))}.")
        headers = _all_filled(draft.headers, answers)
        kind = {"type": draft.transport} if draft.transport else {}
        return {**kind, "url": url, **({"headers": headers} if headers else {})}
    env = _all_filled(draft.env, answers)
    at = len(draft.args) if draft.env_at is None else draft.env_at
    passed_on = [] if draft.env_at is None else [text for name in env for text in ("-e", name)]
    args = [*_words(draft.args[:at], answers), *passed_on, *_words(draft.args[at:], answers)]
    return {"command": draft.command, **({"args": args} if args else {}), **({"env": env} if env else {})}


def _all_filled(texts: Mapping[str, Pieces], answers: Answers) -> dict[str, str]:
    filled = {name: _filled(value, answers) for name, value in texts.items()}
    return {name: value for name, value in filled.items() if value is not None}


def _filled(text: Pieces, answers: Answers) -> str | None:
    """The filled text, with several answers to one gap joined by commas; None if an answer is missing."""
    parts = [piece if isinstance(piece, str) else ",".join(answers.get(piece.key, ())) or None for piece in text]
    given = [part for part in parts if part is not None]
    if any(_makes_variable(one, other) for one, other in pairwise(given)):
        raise ConfigurationError(
            "Joined, its parts make a variable, ${...}, which would be replaced by a value of yours. Only you may "
            "write such a variable."
        )
    return "".join(given) if len(given) == len(parts) else None


def _makes_variable(one: str, other: str) -> bool:
    """Whether a variable starts in one text and continues in the next. Each text was only checked by itself."""
    return one.endswith("$") and VARIABLE.match(f"${other}") is not None


def _words(arguments: Iterable[Argument], answers: Answers) -> Iterator[str]:
    for argument in arguments:
        flag = [argument.flag] if argument.flag else []
        if argument.is_switch:
            yield from flag if _filled(argument.value, answers) == "true" else []
        elif len(argument.value) == 1 and isinstance(gap := argument.value[0], Gap):
            for one in answers.get(gap.key, ()):
                yield from (*flag, one)
        elif (value := _filled(argument.value, answers)) is not None:
            yield from (*flag, value) if argument.value else flag
