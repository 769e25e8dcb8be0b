"""Asks a person at a terminal: for values, hidden ones too, and for a yes. Called by commands; stores nothing."""

from __future__ import annotations

import getpass
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import in_a_line

if TYPE_CHECKING:
    from mcp_optimizer.packages.inputs import WantedInput


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def hidden_value(title: str) -> str:
    """A value that is typed without being shown."""
    with warnings.catch_warnings():
        # A terminal that cannot hide what is typed: better no value than a shown one.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"{title} (not shown): ")
        except getpass.GetPassWarning:
            raise ConfigurationError("This terminal would show the typed value; give it on stdin.") from None


def value_of_stdin() -> str:
    """All of stdin, without the newline at its end."""
    from mcp_optimizer.identity.secrets import MOST_BYTES, value_of

    # One byte more than allowed, and a newline: a longer value is noticed, and never read completely.
    given = sys.stdin.buffer.read(MOST_BYTES + 3)
    return value_of(given.removesuffix(b"\n").removesuffix(b"\r"))


def is_agreed(question: str) -> bool:
    """Whether a person says yes; anything else is a no."""
    return _line(f"{question} [y/N] ").lower() in ("y", "yes")


def asked_values(wanted: WantedInput) -> tuple[str, ...]:
    """The values of an input, asked for until they are usable. Several are asked for until an empty one."""
    _explain(wanted)
    found: list[str] = []
    while True:
        value = (
            hidden_value(f"  {in_a_line(wanted.key)}") if wanted.is_secret else _line(f"  {in_a_line(wanted.key)}: ")
        )
        if not value and (found or wanted.default or not wanted.is_required):
            return tuple(found) or wanted.default
        problem = wanted.problem(value) if value else "is required"
        if problem:
            print(in_a_line(f"  {wanted.key} {problem}."), file=sys.stderr)
            continue
        found.append(with_full_path(wanted, value))
        if not wanted.is_list:
            return tuple(found)


def with_full_path(wanted: WantedInput, value: str) -> str:
    """A path as a server needs it, which runs in another folder and knows no `~`."""
    from mcp_optimizer.packages.inputs import InputFormat

    is_path = wanted.format is InputFormat.PATH and "${" not in value
    try:
        return str(Path(value).expanduser().absolute()) if is_path else value
    except RuntimeError:
        raise ConfigurationError(f"{wanted.key}: there is no home of that user.") from None


def _explain(wanted: WantedInput) -> None:
    said = [
        wanted.description,
        f"one of: {', '.join(wanted.choices)}" if wanted.choices else "",
        f"default: {', '.join(wanted.default)}" if wanted.default and not wanted.is_secret else "",
        "several, then an empty line" if wanted.is_list else "",
    ]
    print(in_a_line(f"{wanted.key}: {'; '.join(filter(None, said)) or 'a value'}"), file=sys.stderr)


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise ConfigurationError("Nothing was answered; nothing was changed.")
    return line.strip()
