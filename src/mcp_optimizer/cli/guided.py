"""`mcp-optimizer` alone, on a terminal: leads from nothing to a connected client, one step at a time.

Each step is a command that is shown before it runs, so what happened here can be repeated, and nothing happens that the
commands would not do. Asks before anything is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import typer

from mcp_optimizer.cli.client_environment import this_machine
from mcp_optimizer.cli.terminal import console, is_agreed
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

RunCommand = Callable[[Sequence[str]], int]
"""Runs one command of the program, and returns its exit code."""

_STEPS = 4
_TWICE = "Its own servers are behind the gateway now, so their tools are listed twice."
_LATER = (
    ("find", "REQUEST", "what a model finds, and at what cost"),
    ("report", "", "after a day: what was saved, and what to do"),
    ("dashboard", "", "the same in a browser, with serve --http 127.0.0.1:8765"),
    ("disconnect", "CLIENT", "undo, byte for byte"),
)


@dataclass(frozen=True)
class Guide:
    """The steps, each of which runs commands of the program."""

    run: RunCommand

    def lead(self) -> None:
        """All steps, as far as the user goes along."""
        from mcp_optimizer.config.clients.finding import found_files

        settings = load_settings({})
        self._title(1, "Servers that your MCP clients have")
        found = found_files(this_machine())
        if found:
            self._do("import", "--dry-run")
        else:
            self._say("No files of known clients were found here.")
        imported: set[str] = set()
        if found and self._agreed(f"Copy them into {settings.server_file}? Your clients' files stay as they are."):
            self._do("import")
            imported = {file.client.name for file in found}
        if not settings.server_file.exists():
            self._say("There are no servers yet. Add one, then come back:  mcp-optimizer add npm:PACKAGE")
            self._say("Or see what this does, with servers of its own:     mcp-optimizer demo")
            return
        self._title(2, "Does each server start, and what does it cost? (The first start of some takes a minute.)")
        self._do("doctor")
        self._title(3, "Put the gateway into your clients")
        self._connect(imported)
        self._title(_STEPS, "Done")
        for command, argument, what in _LATER:
            self._say(f"  {f'mcp-optimizer {command} {argument}'.strip():<34} {what}")

    def _connect(self, imported: Collection[str]) -> None:
        """`imported`: clients whose servers are behind the gateway now."""
        from mcp_optimizer.config.clients.connecting import is_installed
        from mcp_optimizer.config.known_clients.table import CLIENTS

        machine = this_machine()
        installed = [client for client in CLIENTS.values() if is_installed(client, machine)]
        if not installed:
            self._say("No MCP client was found here. When there is one:  mcp-optimizer connect CLIENT")
            return
        self._say(f"Found {counted(len(installed), 'client')}: {', '.join(client.title for client in installed)}.")
        for client in installed:
            if self._agreed(f"Connect {client.title}?"):
                self._do("connect", client.name, "--yes")
                if client.name in imported and self._agreed(f"{_TWICE} Switch them off in {client.title}?"):
                    self._do("import", client.name, "--move", "--yes")

    def _title(self, number: int, text: str) -> None:
        console().print(f"\n[bold]{number} of {_STEPS}[/]  {text}\n")

    def _say(self, text: str) -> None:
        console().print(in_a_line(text) if not text.startswith("  ") else text, markup=False, soft_wrap=True)

    def _agreed(self, question: str) -> bool:
        return is_agreed(question)

    def _do(self, *words: str) -> int:
        console().print(f"$ mcp-optimizer {shlex.join(words)}", style="dim", markup=False)
        return self.run(words)


def lead(program: Callable[[str], typer.Typer]) -> None:
    """Lead through the first use. `program` makes the program with one of its commands."""

    def run(words: Sequence[str]) -> int:
        try:
            code = typer.main.get_command(program(words[0])).main(list(words), "mcp-optimizer", standalone_mode=False)
        except OptimizerError as error:
            console().print(in_a_line(f"error: {error}"), style="red", markup=False, soft_wrap=True)
            return 1
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return code if isinstance(code, int) else 0

    Guide(run).lead()
