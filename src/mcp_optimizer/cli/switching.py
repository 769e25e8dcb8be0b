"""`remove`, `enable` and `disable`: change the entries of the server file. Starts no server."""

from __future__ import annotations

import difflib
import fnmatch
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import JsonFlag, complete_server, with_settings
from mcp_optimizer.cli.terminal import is_agreed, is_terminal, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import in_a_line

_Names = Annotated[
    list[str], typer.Argument(help="Names of servers.", show_default=False, autocompletion=complete_server)
]
_Targets = Annotated[
    list[str],
    typer.Argument(
        help="Names of servers, or of tools as SERVER/TOOL.", show_default=False, autocompletion=complete_server
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_BY_ITSELF = "A running gateway takes it in by itself."


def register(app: typer.Typer) -> None:
    for command in (remove, enable, disable):
        app.command()(command)


@with_settings()
def remove(names: _Names, *, settings: Settings, yes: _Yes = False, as_json: JsonFlag = False) -> None:
    """Remove servers from the server file."""
    run(_remove(settings, list(dict.fromkeys(names)), yes, as_json))


@with_settings()
def enable(targets: _Targets, *, settings: Settings, as_json: JsonFlag = False) -> None:
    """Use servers, or tools of them, again."""
    run(_switch(settings, targets, True, as_json))


@with_settings()
def disable(targets: _Targets, *, settings: Settings, as_json: JsonFlag = False) -> None:
    """Stop using servers, or single tools of them, without removing anything."""
    run(_switch(settings, targets, False, as_json))


async def _remove(settings: Settings, names: list[str], is_agreed_to: bool, as_json: bool) -> None:
    from mcp_optimizer.config.serverfile.file_edits import change_file, entries_in, file_text, without_entry

    path = _server_file(settings)
    before = entries_in(file_text(path))
    _refuse_unknown(names, before)
    if not is_agreed_to:
        if not is_terminal():
            raise ConfigurationError(f"Give --yes to remove {', '.join(names)} from {path}.")
        if not is_agreed(f"Remove {', '.join(map(in_a_line, names))} from {path}?"):
            raise ConfigurationError("Nothing was changed.")

    def without_all(text: str) -> str:
        for name in names:
            text = without_entry(text, name)
        return text

    change_file(path, without_all)
    for name in names:
        await record_act(settings, "server/remove", server=name)
    left = _left_behind({name: before[name] for name in names}, entries_in(file_text(path)))
    if as_json:
        print_json({"removed": names, "left": left, "file": str(path)})
        return
    for name in names:
        print(in_a_line(f"Removed {name}."))
    for text in left:
        print(in_a_line(text))
    print(_BY_ITSELF)


def _left_behind(removed: dict[str, Any], others: dict[str, Any]) -> list[str]:
    """What is still stored of removed servers, for a person who wants it gone."""
    from mcp_optimizer.config.serverfile.variables import secrets_used

    said = [
        f"A secret that only it used is still stored: mcp-optimizer secret delete {shlex.quote(name)}"
        for name in sorted(secrets_used(list(removed.values())) - secrets_used(list(others.values())))
    ]
    if any(isinstance(entry, dict) and "url" in entry for entry in removed.values()):
        said.append("A login to it stays stored and is used again if it is added again.")
    said.append("The approved state of its tools is kept; `mcp-optimizer trust reset` forgets it.")
    return said


async def _switch(settings: Settings, targets: list[str], is_on: bool, as_json: bool) -> None:
    from mcp_optimizer.config.serverfile.file_edits import (
        change_file,
        entries_in,
        file_text,
        with_server_on,
        with_tool_on,
    )

    path = _server_file(settings)
    known = entries_in(file_text(path))
    places = [_server_and_tool(target, known) for target in dict.fromkeys(targets)]
    _refuse_unknown([server for server, _ in places], known)
    if not is_on:
        await _refuse_unknown_tools(settings, places)

    def with_all(text: str) -> str:
        for server, tool in places:
            text = with_tool_on(text, server, tool, is_on) if tool else with_server_on(text, server, is_on)
        return text

    changed = change_file(path, with_all)
    method = "enable" if is_on else "disable"
    for server, tool in places if changed else ():
        await record_act(settings, f"server/{method}", tool, server)
    shown = [f"{server}/{tool}" if tool else server for server, tool in places]
    if as_json:
        print_json({f"{method}d": shown, "changed": changed, "file": str(path)})
        return
    print(in_a_line(f"{method.capitalize()}d {', '.join(shown)}.") if changed else "It was so already.")
    if changed:
        print(_BY_ITSELF)
    for server, tool in places:
        if is_on and tool and _is_off(entries_in(file_text(path))[server]):
            print(in_a_line(f"The server itself is disabled: mcp-optimizer enable {shlex.quote(server)}"))


def _is_off(entry: dict[str, Any]) -> bool:
    return bool(entry.get("disabled")) or entry.get("enabled") is False


def _server_and_tool(target: str, known: dict[str, Any]) -> tuple[str, str]:
    """Splits `SERVER/TOOL`. A server whose own name contains a slash takes precedence."""
    if target in known:
        return target, ""
    owners = [name for name in known if target.startswith(f"{name}/") and len(target) > len(name) + 1]
    if owners:
        owner = max(owners, key=len)
        return owner, target[len(owner) + 1 :]
    return target.partition("/")[0], target.partition("/")[2]


def _refuse_unknown(names: list[str], known: dict[str, Any]) -> None:
    if unknown := [name for name in names if name not in known]:
        from mcp_optimizer.errors import listed

        raise ConfigurationError(f"There is no server {unknown[0]!r}. Servers: {listed(list(known)) or 'none'}.")


async def _refuse_unknown_tools(settings: Settings, places: list[tuple[str, str]]) -> None:
    """Refuse tools that a server did not list; of one that was never listed with this entry, any name is taken."""
    from mcp_optimizer.app.command_start import listed_tools
    from mcp_optimizer.app.servers import server_specs

    named = {server for server, tool in places if tool}
    if not named:
        return
    specs = [spec for spec in server_specs(settings.model_copy(update={"servers": ""})) if spec.name in named]
    known, by_name = await listed_tools(settings, specs), {spec.name: spec for spec in specs}
    for server, tool in places:
        there = known.get(server, frozenset())
        if not tool or not there or not by_name[server].tools.admits(tool) or fnmatch.filter(there, tool):
            continue
        near = difflib.get_close_matches(tool, there, n=3)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise ConfigurationError(f"Server {server!r} has no tool {tool!r}.{hint}")


def _server_file(settings: Settings) -> Path:
    if settings.demo:
        raise ConfigurationError("The demo has no server file; leave --demo away.")
    path = settings.server_file
    if not path.exists():
        raise ConfigurationError(f"No server file at {path}. `mcp-optimizer add` makes one.")
    return path
