"""`registry search` and `registry show`: looks up servers in an MCP registry. Starts nothing and changes nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

if TYPE_CHECKING:
    from mcp_optimizer.config.packages.registry import ListedServer

_Text = Annotated[str, typer.Argument(help="A part of the server's name.", show_default=False)]
_Name = Annotated[str, typer.Argument(help="The name in the registry, such as io.github.user/server.")]
_Address = Annotated[str, typer.Option("--registry", help="Address of another registry.")]
_Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="Maximum servers to list.")]
_Version = Annotated[str, typer.Option("--version", help="A version. Default: the newest.")]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Look for servers in an MCP registry.")
    group.command("search")(search)
    group.command("show")(show)
    app.add_typer(group, name="registry")


@with_settings()
def search(
    text: _Text, *, settings: Settings, registry: _Address = "", limit: _Limit = 30, as_json: JsonFlag = False
) -> None:
    """List servers whose name contains a text."""
    del settings
    run(_search(text, registry, limit, as_json))


@with_settings()
def show(
    name: _Name, *, settings: Settings, registry: _Address = "", version: _Version = "", as_json: JsonFlag = False
) -> None:
    """Show one server of the registry: its state, and the ways to run it."""
    del settings
    run(_show(name, registry, version, as_json))


async def _search(text: str, address: str, limit: int, as_json: bool) -> None:
    from mcp_optimizer.config.packages.registry import PUBLIC_REGISTRY, Registry

    found = await Registry(address or PUBLIC_REGISTRY).search(text, limit)
    if as_json:
        print_json({"servers": [_facts(server) for server in found]})
        return
    out = console()
    for server in found:
        state = "" if server.condition == "active" else f" ({server.condition})"
        out.print(f"{server.name} {server.version}{state}", style="bold", markup=False, soft_wrap=True)
        out.print(f"  {in_a_line(server.description)}", markup=False)
    out.print(counted(len(found), "server"), markup=False)


async def _show(name: str, address: str, version: str, as_json: bool) -> None:
    from mcp_optimizer.config.packages.registry import PUBLIC_REGISTRY, Registry

    server = await Registry(address or PUBLIC_REGISTRY).server(name, version)
    facts = _facts(server)
    if as_json:
        print_json(facts)
        return
    out = console()

    def line(text: str) -> None:
        out.print(in_a_line(text), markup=False, soft_wrap=True)

    line(f"{server.name} {server.version} ({server.condition}{f': {server.message}' if server.message else ''})")
    line(server.description)
    line(f"Ways to run it: {', '.join(facts['packages']) or 'none'}")
    line(f"See what it would run: mcp-optimizer add {shlex.quote(server.name)} --dry-run")


def _facts(server: ListedServer) -> dict[str, Any]:
    from mcp_optimizer.config.packages.registry import ways_to_run

    facts = {"name": server.name, "version": server.version, "status": server.condition.value}
    return {**facts, "description": server.description, "packages": ways_to_run(server.document)}
