"""The command line: `mcp-optimizer`. One file a group of commands; heavy parts load when a command needs them."""

from __future__ import annotations

import sys

import typer

from mcp_optimizer.cli import inspect_servers, reports, serve, setup, tools
from mcp_optimizer.errors import ConfigurationError, OptimizerError

app = typer.Typer(
    name="mcp-optimizer",
    help="One MCP endpoint in front of all your MCP servers: finds the few tools that fit, and says what it saved.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (serve, setup, tools, inspect_servers, reports):
    group.register(app)


def main() -> None:
    """Exit codes: 0 well, 1 failed, 2 wrong usage or configuration."""
    try:
        app()
    except ConfigurationError as error:
        _fail(error, 2)
    except OptimizerError as error:
        _fail(error, 1)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error worth a traceback.
        sys.stderr.close()
        sys.exit(0)


def _fail(error: OptimizerError, code: int) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(code)
