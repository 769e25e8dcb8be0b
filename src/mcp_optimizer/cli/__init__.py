"""The command line: `mcp-optimizer`. One file per group of commands; heavy parts load when a command needs them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mcp_optimizer import __version__
from mcp_optimizer.cli import (
    adding,
    audit,
    connecting,
    doctor,
    health,
    importing,
    inspect_servers,
    keys,
    logins,
    operate,
    policy,
    registries,
    reports,
    secrets,
    serve,
    service,
    setup,
    switching,
    tools,
    trust,
)
from mcp_optimizer.cli.groups import CommandGroup, Panel
from mcp_optimizer.control.failures import failure_of
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.terminal_text import printable

app = CommandGroup(
    name="mcp-optimizer",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mcp-optimizer {__version__}")
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)]


@app.callback()
def options(*, version: _Version = False) -> None:
    """One MCP endpoint in front of all your MCP servers. It finds the few tools that fit and reports what
    that saved.
    """


PANELS = {
    "Start here": (serve, setup),
    "Clients": (importing, connecting),
    "Look": (tools, reports),
    "Servers": (adding, switching, registries, inspect_servers, doctor, operate, logins, secrets, trust),
    "Share": (keys, policy, audit),
    "Run for good": (service, health),
}
"""The parts of the help, and the commands in each."""

for title, groups in PANELS.items():
    for group in groups:
        group.register(Panel(app, title))


def main() -> None:
    """Exit codes: 0 success, 1 failure, 2 wrong usage or configuration."""
    try:
        app()
    except OptimizerError as error:
        failure = failure_of(error)
        # The message may quote a server.
        print(printable(f"error: {failure.message}"), file=sys.stderr)
        sys.exit(failure.code)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): not an error worth a traceback.
        sys.stderr.close()
        sys.exit(0)
