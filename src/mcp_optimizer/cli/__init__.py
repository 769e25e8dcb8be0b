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
    importing,
    inspect_servers,
    keys,
    logins,
    policy,
    registries,
    reports,
    secrets,
    serve,
    setup,
    switching,
    tools,
    trust,
)
from mcp_optimizer.errors import ConfigurationError, InvalidArguments, OptimizerError, UnknownTool
from mcp_optimizer.runtime.terminal_text import printable

app = typer.Typer(
    name="mcp-optimizer",
    no_args_is_help=True,
    add_completion=False,
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


for group in (
    serve,
    setup,
    adding,
    switching,
    registries,
    importing,
    connecting,
    tools,
    inspect_servers,
    logins,
    secrets,
    keys,
    policy,
    trust,
    reports,
    audit,
):
    group.register(app)


def main() -> None:
    """Exit codes: 0 success, 1 failure, 2 wrong usage or configuration."""
    try:
        app()
    except ConfigurationError as error:
        _fail(error, 2)
    except InvalidArguments as error:
        _fail(error, 1, f" `mcp-optimizer show {error.tool}` explains them.")
    except UnknownTool as error:
        _fail(error.without_advice, 1, " Search with `mcp-optimizer find`.")
    except OptimizerError as error:
        _fail(error, 1)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): not an error worth a traceback.
        sys.stderr.close()
        sys.exit(0)


def _fail(error: OptimizerError | str, code: int, advice: str = "") -> None:
    # The message may quote a server.
    print(printable(f"error: {error}{advice}"), file=sys.stderr)
    sys.exit(code)
