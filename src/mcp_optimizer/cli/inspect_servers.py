"""`servers` and `doctor`: the configured servers, their state, and how to fix those that do not work."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from mcp_optimizer.cli.inquiry import FreshFlag, Inquiry
from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.runtime.terminal_text import counted, in_a_line
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.upstream.state import UpstreamState


def register(app: typer.Typer) -> None:
    for command in (servers, doctor):
        app.command()(command)


@with_settings()
def servers(*, settings: Settings, flags: frozenset[str], fresh: FreshFlag = False, as_json: JsonFlag = False) -> None:
    """List the configured servers, their state and the cost of their tools."""
    from mcp_optimizer.control.requests import ServersRequest

    begin = partial(started, shows_servers=True)
    rows = Inquiry(settings, flags, fresh).answer(ServersRequest(), begin, shows_servers=True)
    if as_json:
        print_json({"servers": rows})
    else:
        _show_servers(rows)


@with_settings()
def doctor(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """Check every server; report problems and how to fix them. Exit code 1 if there are any."""
    healthy = run(_doctor(settings, as_json))
    if not healthy:
        sys.exit(1)


def _show_servers(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for title in ("server", "state", "transport"):
        table.add_column(title, no_wrap=True)
    for title in ("tools", "tokens"):
        table.add_column(title, justify="right")
    table.add_column("", overflow="fold", ratio=1)
    for row in rows:
        texts = (row["name"], row["status"], row["transport"], f"{row['tools']:,}", f"{row['tokens']:,}")
        said = "; ".join(filter(None, [row.get("reason", ""), *_changes(row)]))
        table.add_row(*map(Text, texts), Text(in_a_line(said), style="yellow"))
    console().print(table)


def _changes(row: dict[str, Any]) -> list[str]:
    """What a person should know about tools that are not as they were approved."""
    held, announced = row.get("held", []), row.get("announced", [])
    return [
        *([f"{counted(len(held), 'tool')} held until approved"] if held else []),
        *([f"{counted(len(announced), 'tool')} changed since approved"] if announced else []),
    ]


async def _doctor(settings: Settings, as_json: bool) -> bool:
    from mcp_optimizer.control.facts import server_facts
    from mcp_optimizer.domain.tools import ServerStatus

    # One attempt each: a restart would hide the first error.
    patient = settings.model_copy(update={"restart_pause": 3_600.0, "restart_pause_max": 3_600.0})
    patient = patient.model_copy(update={"wait": settings.start_timeout + 10})
    async with started(patient, shows_servers=True) as optimizer:
        rows = [server_facts(optimizer.snapshot, state) for state in optimizer.servers()]
        states = optimizer.servers()
    for row, state in zip(rows, states, strict=True):
        if advice := advise(state):
            row["advice"] = advice
    healthy = all(state.status in (ServerStatus.RUNNING, ServerStatus.STOPPED) for state in states)
    if as_json:
        print_json({"healthy": healthy, "servers": rows})
    else:
        _show_diagnosis(rows)
    return healthy


_ADVICE = {
    "command": 'Install {target!r}, or set the server\'s "command" to its full path.',
    "variable": 'Set the variable in the environment of mcp-optimizer, or put the value in the server\'s "env".',
    "secret": "Secrets are in the catalog database: set them with the same --database as the gateway's.",
    "not_mcp": "It must write only MCP messages to stdout. Look for an option that sends its logs to stderr.",
    "exited": "Run its command in a terminal to see the full message. Usually an argument, a key or a file is missing.",
    "entry": "Correct its entry in the server file.",
    "login": "Log in once: mcp-optimizer login {name}",
    "unauthorised": 'It wants credentials: set them in the server\'s "headers".',
    "fault": "This is a bug in mcp-optimizer. Please report it, with the traceback from the log.",
}
"""By the kind of a failure; read with the command line, so without importing it."""

_SILENT = (
    "It starts, but does not speak MCP in time. Run its command in a terminal: it may wait for input or a login. "
    "If it is only slow (a first npx or uvx download), raise --start-timeout."
)


def advise(state: UpstreamState) -> str:
    """What a user can do about a server that does not run."""
    if state.failure is None:
        return ""
    if advice := _ADVICE.get(state.failure):
        return advice.format(target=state.spec.target, name=shlex.quote(state.name))
    if not state.spec.command:
        return f"Check that {state.spec.target} is correct and that its server is running."
    return _SILENT if state.failure == "silent" else "Run its command in a terminal, and check its entry."


def _show_diagnosis(rows: list[dict[str, Any]]) -> None:
    from rich.text import Text

    out = console()
    marks = {"running": ("✓", "green"), "failed": ("✗", "red"), "stopped": ("–", "dim"), "starting": ("…", "yellow")}
    marks["login needed"] = ("!", "yellow")
    for row in rows:
        mark, style = marks[row["status"]]
        line = Text(f"{mark} {row['name']}", style=style)
        if row["status"] == "running":
            line.append(f"  {counted(row['tools'], 'tool')}, {row['tokens']:,} tokens", style="default")
            line.append(
                f"  up in {row['started_in_s']} s, MCP {row['protocol']}, {in_a_line(row.get('version', ''))}",
                style="dim",
            )
        else:
            line.append(f"  {in_a_line(row.get('reason', row['status']))}", style="default")
        out.print(line)
        if off := row.get("turned_off"):
            out.print(Text(f"    {counted(len(off), 'tool')} turned off: {', '.join(off)}", style="dim"))
        for change in _changes(row):
            see = f"mcp-optimizer trust diff {shlex.quote(row['name'])}"
            out.print(Text(f"    {change}: {see}", style="yellow"))
        for name in row.get("no_such_tools", []):
            told = f"    the server file names the tool {name!r}, but this server does not have it"
            out.print(Text(told, style="yellow"))
        for tool in row.get("left_out", []):
            out.print(Text(f"    tool {tool['tool']!r} is left out: {in_a_line(tool['reason'])}", style="yellow"))
        if "advice" in row:
            out.print(Text(f"    {row['advice']}", style="cyan"))
    failed = sum(row["status"] not in ("running", "stopped") for row in rows)
    out.print(f"{counted(len(rows), 'server')}, {f'{failed} with a problem' if failed else 'no problems'}")
