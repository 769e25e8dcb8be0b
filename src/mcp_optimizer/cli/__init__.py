"""The command line: `mcp-optimizer`. One file per group of commands; heavy modules load when a command needs them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Final

import typer

from mcp_optimizer import __version__
from mcp_optimizer.cli.command_options import CommandGroup, Panel
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.lazy import load_later
from mcp_optimizer.runtime.terminal_text import printable

PANELS: Final = {
    "Begin": {"serve": "serve", "setup": "init demo"},
    "Clients": {"importing": "import", "connecting": "connect disconnect"},
    "Look": {"tools": "find call read tools", "scripts": "script", "reports": "report show"},
    "Servers": {
        "adding": "add",
        "switching": "remove enable disable",
        "registries": "registry",
        "doctor": "servers doctor",
        "operate": "status restart reload logs dashboard",
        "logins": "login logout auth",
        "secrets": "secret",
        "trust": "trust",
        "folders": "folder",
    },
    "Share": {"keys": "key", "policy": "policy", "audit": "audit"},
    "Run for good": {"service": "service", "health": "health"},
}
"""The sections of the help, after the commands that come first: for each, the modules of this package, and the
commands of each module.
"""

FIRST: Final = tuple("import connect doctor find tools report serve dashboard add demo".split())
"""The commands that the help shows first, in the order in which a new user needs them."""

SDK: Final = ("mcp", "mcp.client", "mcp.server")
"""Packages that import much more than we use: a client, a high-level server, and its cryptography."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mcp-optimizer {__version__}")
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)]


def options(*, version: _Version = False) -> None:
    """One MCP endpoint in front of all your MCP servers. It finds the few tools that fit and reports what
    that saved.
    """


def program(wanted: str = "") -> typer.Typer:
    """All commands; or, if `wanted` names one, only those of its module: loading all of them takes half a second."""
    app = CommandGroup(name="mcp-optimizer", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(options)
    named = {command for modules in PANELS.values() for commands in modules.values() for command in commands.split()}
    for title, modules in PANELS.items():
        for module, commands in modules.items():
            if wanted in commands.split() or wanted not in named:
                import_module(f"{__name__}.{module}").register(Panel(app, title, FIRST, "Start here"))
    app.registered_commands.sort(key=lambda one: _place(str(one.name or getattr(one.callback, "__name__", ""))))
    return app


def _place(command: str) -> int:
    return FIRST.index(command) if command in FIRST else len(FIRST)


def main() -> None:
    """Exit codes: 0 success, 1 failure, 2 wrong usage or configuration."""
    load_later(*SDK)
    try:
        if len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty():
            from mcp_optimizer.cli.setup import lead

            lead(program)
            return
        program(sys.argv[1] if len(sys.argv) > 1 else "")()
    except OptimizerError as error:
        from mcp_optimizer.app.control.wire import failure_of

        failure = failure_of(error)
        # The message may quote a server.
        print(printable(f"error: {failure.message}"), file=sys.stderr)
        sys.exit(failure.code)
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`): not an error worth a traceback.
        sys.stderr.close()
        sys.exit(0)
