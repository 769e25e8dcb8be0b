"""A server that is about to be added: its command or address with gaps, and what fills them. Pure.

`entry_of` makes the entry of the server file. What others wrote is in here only as `foreign` let it through; what the
user answers may refer to variables and secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.packages.foreign import VARIABLE
from mcp_optimizer.packages.inputs import Answers, WantedInput


@dataclass(frozen=True)
class Gap:
    """Where an answer goes."""

    key: str


Pieces = tuple[str | Gap, ...]
"""A text with gaps. One whose gaps are not all filled is left out with everything around it."""


@dataclass(frozen=True)
class Argument:
    """Words of a command: a value, perhaps with a flag before it. A switch is only its flag, if the value is true."""

    value: Pieces = ()
    flag: str = ""
    is_switch: bool = False


@dataclass(frozen=True)
class Draft:
    """A command with arguments, or an address, whose `transport` is empty if it must be found out.

    `env_at`: where a container is told which variables to pass on.
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
    """Whether somebody else decided what runs, so that the user should look at it first."""

    def with_values(self, env: Mapping[str, str], headers: Mapping[str, str]) -> Draft:
        """With variables and headers that the user chose, which replace those of the same name."""
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
        """Asks only for what has a gap."""
        used = set(self.gaps())
        return replace(self, wanted={key: one for key, one in self.wanted.items() if key in used})

    def gaps(self) -> Iterator[str]:
        texts = [*(argument.value for argument in self.args), *self.env.values(), self.url, *self.headers.values()]
        yield from (piece.key for text in texts for piece in text if isinstance(piece, Gap))

    def missing(self, answers: Answers) -> list[WantedInput]:
        """What must be answered and is not."""
        return [one for one in self.wanted.values() if one.is_required and not answers.get(one.key)]

    def with_defaults(self, answers: Answers) -> dict[str, tuple[str, ...]]:
        """The answers, and the defaults of what was not answered."""
        defaults = {key: one.default for key, one in self.wanted.items() if one.default}
        return {**defaults, **{key: value for key, value in answers.items() if value}}


def word(text: str) -> Argument:
    return Argument((text,))


def words(texts: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(word(text) for text in texts)


def entry_of(draft: Draft, answers: Answers) -> dict[str, Any]:
    """The entry of the server file. Everything that is required must be answered."""
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
    """The text, with several answers to one gap separated by commas; None if an answer is missing."""
    parts = [piece if isinstance(piece, str) else ",".join(answers.get(piece.key, ())) or None for piece in text]
    given = [part for part in parts if part is not None]
    if any(_makes_variable(one, other) for one, other in pairwise(given)):
        raise ConfigurationError(
            "Joined, its parts make a variable, ${...}, which would be replaced by a value of yours. Only you may "
            "write such a variable."
        )
    return "".join(given) if len(given) == len(parts) else None


def _makes_variable(one: str, other: str) -> bool:
    """Whether a variable begins in a text and goes on in the next. Each was looked at alone before."""
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
