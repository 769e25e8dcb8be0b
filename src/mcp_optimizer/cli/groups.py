"""Commands whose help shows their own options, and groups of commands. The options that all share take one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from mcp_optimizer.cli.options import SHARED_PANEL, SHOWS_ALL


class OwnOptionsFirst(TyperCommand):
    """A command that lists the shared options only for `--help-all`."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        if not ctx.meta.get(_IN_HELP) or ctx.meta.get(SHOWS_ALL):
            return found
        return [one for one in found if getattr(one, "rich_help_panel", None) != SHARED_PANEL]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        ctx.meta[_IN_HELP] = True
        super().format_help(ctx, formatter)


_IN_HELP = "mcp_optimizer.in_help"


class CommandGroup(typer.Typer):
    """Commands under one name, or in one panel of the help."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": OwnOptionsFirst, **options})


class Panel(CommandGroup):
    """A titled part of the program's help: whatever is registered here is a command of the program."""

    def __init__(self, program: typer.Typer, title: str) -> None:
        super().__init__()
        self._program = program
        self._title = title

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return self._program.command(name, **{"rich_help_panel": self._title, **options})

    def add_typer(self, typer_instance: typer.Typer, **options: Any) -> None:
        self._program.add_typer(typer_instance, **{"rich_help_panel": self._title, **options})
