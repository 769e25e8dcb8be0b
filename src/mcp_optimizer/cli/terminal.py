"""What commands print to a terminal, and what they ask there.

One console and one JSON printer, which no server can use to control the terminal. Also reads values, hidden ones too,
and confirmations; stores nothing.
"""

from __future__ import annotations

import getpass
import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable
    from rich.segment import Segment

    from mcp_optimizer.config.packages.draft import WantedInput


def console() -> Console:
    from rich.console import Console, RenderHook

    class EverythingPrintable(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [_Printable(renderable) for renderable in renderables]

    made = Console(highlight=False, soft_wrap=False)
    made.push_render_hook(EverythingPrintable())
    return made


class _Printable:
    """Removes control characters from printed text; our own colours stay."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def print_json(value: Any) -> None:
    """Print one object on one line, for programs."""
    print(printable_json(json.dumps(value, ensure_ascii=False)))


def definition_costs(tools: int, tokens: int, sent_tokens: int) -> str:
    """What tools cost before one of them is called: all of their definitions, and what of them clients send."""
    return (
        f"{counted(tools, 'tool')}: {tokens:,} tokens of definitions. A client that lists them all sends "
        f"{sent_tokens:,} of them (name, description, input schema) in every prompt"
    )


def say_next(*steps: str) -> None:
    """Say what usually comes next, to a person at a terminal; programs read only the answer."""
    if sys.stdout.isatty():
        for number, step in enumerate(steps):
            console().print(f"{'Next:' if number == 0 else '     '} {step}", style="cyan", markup=False, soft_wrap=True)


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def hidden_value(title: str) -> str:
    """A value that the user types without it being shown."""
    with warnings.catch_warnings():
        # A terminal that cannot hide typing: no value is better than a visible one.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"{title} (not shown): ")
        except getpass.GetPassWarning:
            raise ConfigurationError("This terminal would show the typed value; give it on stdin.") from None


def value_of_stdin() -> str:
    """All of stdin, without its final newline."""
    from mcp_optimizer.identity.secrets import MOST_BYTES, value_of

    # One byte more than allowed, and a newline: enough to notice a value that is too long without reading all of it.
    given = sys.stdin.buffer.read(MOST_BYTES + 3)
    return value_of(given.removesuffix(b"\n").removesuffix(b"\r"))


def is_agreed(question: str) -> bool:
    """Whether a person answers yes; any other answer is a no."""
    return _answer_line(f"{question} [y/N] ").lower() in ("y", "yes")


def asked_values(wanted: WantedInput) -> tuple[str, ...]:
    """Ask for the values of an input until they are usable. A repeatable input ends with an empty answer."""
    _explain(wanted)
    found: list[str] = []
    while True:
        value = (
            hidden_value(f"  {in_a_line(wanted.key)}")
            if wanted.is_secret
            else _answer_line(f"  {in_a_line(wanted.key)}: ")
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
    """An absolute path, because a server runs in another folder and does not expand `~`."""
    from mcp_optimizer.config.packages.draft import InputFormat

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


def _answer_line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise ConfigurationError("Nothing was answered; nothing was changed.")
    return line.strip()
