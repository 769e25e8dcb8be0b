"""`servers` and `doctor`: how the configured servers are, and how to fix what is wrong.

`doctor` tries every server once; with `--fix` it corrects what needs no guess.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.advice import advise
from mcp_optimizer.cli.fixing import corrections, fix
from mcp_optimizer.cli.inquiry import FreshFlag, Inquiry
from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.cli.server_rows import changes_of
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from rich.text import Text

    from mcp_optimizer.app.optimizer import Optimizer

_WIDEST_NAME = 24
"""Columns for names: longer ones go on in the next line."""
_MARKS = {
    "running": ("✓", "green"),
    "failed": ("✗", "red"),
    "stopped": ("-", "dim"),
    "starting": ("…", "yellow"),
    "login needed": ("!", "yellow"),
}
_NO_SERVERS = "No servers are configured, so there is nothing to find or call."
_ALL_DISABLED = "Every server is disabled, so there is nothing to find or call."


_Fix = Annotated[
    bool, typer.Option("--fix", help="Correct the problems in the server file that need no guess, after asking.")
]
_Yes = Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")]


def register(app: typer.Typer) -> None:
    app.command()(servers)
    app.command()(doctor)


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
        said = "; ".join(filter(None, [row.get("reason", ""), *changes_of(row)]))
        table.add_row(*map(Text, texts), Text(in_a_line(said), style="yellow"))
    console().print(table)


@with_settings()
def doctor(*, settings: Settings, mend: _Fix = False, yes: _Yes = False, as_json: JsonFlag = False) -> None:
    """Check every server; report problems and how to fix them. Exit code 1 if there are any."""
    found = corrections(settings)
    fixed = found.lines if found is not None and mend and fix(found, yes=yes) else []
    left = found.lines if found is not None and not fixed else []
    if not run(_doctor(settings, as_json, fixed, left)):
        sys.exit(1)


async def _doctor(settings: Settings, as_json: bool, fixed: list[str], left: list[str]) -> bool:
    """`fixed` was corrected in the server file just now; `left` could be."""
    # One attempt each: a restart would hide the first error.
    patient = settings.model_copy(update={"restart_pause": 3_600.0, "restart_pause_max": 3_600.0})
    patient = patient.model_copy(update={"wait": settings.start_timeout + 10})
    from mcp_optimizer.control.facts import server_facts

    async with started(patient, shows_servers=True) as optimizer:
        states = optimizer.servers()
        rows = [server_facts(optimizer.snapshot, state) for state in states]
        broken = await _broken_scripts(optimizer)
    for row, state in zip(rows, states, strict=True):
        if advice := advise(state):
            row["advice"] = advice
    about = _about_all(rows, settings)
    healthy = not about and not broken and all(row["status"] in ("running", "stopped") for row in rows)
    if as_json:
        did = {key: lines for key, lines in (("fixed", fixed), ("fixable", left)) if lines}
        found = {"scripts": broken} if broken else {}
        print_json({"healthy": healthy, "servers": rows, **about, **found, **did})
    else:
        _show(rows, about)
        _show_scripts(broken)
        _show_fixes(fixed, left)
    return healthy


async def _broken_scripts(optimizer: Optimizer) -> list[dict[str, str]]:
    """Stored scripts that somebody must save again."""
    scripts = optimizer.parts.stored_scripts
    if scripts is None:
        return []
    from mcp_optimizer.control.script_facts import script_rows

    try:
        rows = await script_rows(scripts)
    except CatalogError:
        # Without the database there are none; that it cannot be opened was logged.
        return []
    return [{"name": row["name"], "reason": row["reason"]} for row in rows if row["state"] == "broken"]


def _about_all(rows: list[dict[str, Any]], settings: Settings) -> dict[str, str]:
    """What is wrong with the whole, if nothing can be found or called although no server has a problem."""
    if any(row["status"] != "stopped" for row in rows):
        return {}
    place = shlex.quote(str(settings.server_file))
    if rows:
        return {"problem": _ALL_DISABLED, "advice": f'Remove "disabled" from the entry of one in {place}.'}
    return {
        "problem": _NO_SERVERS,
        "advice": f'Add entries to "mcpServers" in {place}, name another file with --config, or try --demo.',
    }


def _show(rows: list[dict[str, Any]], about: dict[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(max_width=_WIDEST_NAME, overflow="fold")
    table.add_column(overflow="fold")
    for row in rows:
        mark, style = _MARKS[row["status"]]
        table.add_row(Text(mark, style=style), Text(in_a_line(row["name"]), style=style), _told(row))
    if rows:
        out.print(table)
    if about:
        out.print(Text(about["problem"], style="red"))
        out.print(Text(about["advice"], style="cyan"))
        return
    failed = sum(row["status"] not in ("running", "stopped") for row in rows)
    out.print(f"{counted(len(rows), 'server')}, {f'{failed} with a problem' if failed else 'no problems'}")


def _show_scripts(broken: list[dict[str, str]]) -> None:
    from rich.text import Text

    out = console()
    for row in broken:
        told = in_a_line(f"The stored script {row['name']} cannot be called: {row['reason']}")
        out.print(Text(told, style="yellow"), soft_wrap=True)


def _show_fixes(fixed: list[str], left: list[str]) -> None:
    from rich.text import Text

    out = console()
    for line in fixed:
        out.print(Text(f"corrected: {line}", style="green"))
    if left:
        out.print(Text("Can be corrected with `mcp-optimizer doctor --fix`:", style="cyan"))
        for line in left:
            out.print(Text(f"  {line}", style="cyan"))


def _told(row: dict[str, Any]) -> Text:
    """Everything about one server, a line for each thing."""
    from rich.text import Text

    told = Text()
    if row["status"] == "running":
        told.append(f"{counted(row['tools'], 'tool')}, {row['tokens']:,} tokens")
        version = in_a_line(row.get("version", ""))
        facts = [f"up in {row['started_in_s']} s", f"MCP {row['protocol']}", *([version] if version else [])]
        told.append("\n" + ", ".join(facts), style="dim")
    else:
        told.append(in_a_line(row.get("reason", row["status"])))
    for line, style in _details(row):
        told.append("\n" + in_a_line(line), style=style)
    return told


def _details(row: dict[str, Any]) -> list[tuple[str, str]]:
    off, name = row.get("turned_off"), shlex.quote(row["name"])
    lines = [f"{change}: mcp-optimizer trust diff {name}" for change in changes_of(row)]
    lines += [
        f"the server file names the tool {tool!r}, but this server does not have it"
        for tool in row.get("no_such_tools", [])
    ]
    lines += [f"tool {tool['tool']!r} is left out: {tool['reason']}" for tool in row.get("left_out", [])]
    if "not_understood" in row:
        lines.append(f"not understood in its entry, and not used: {', '.join(row['not_understood'])}")
    if row["status"] == "running" and "prints" in row:
        lines.append(f"prints text on stdout, where only MCP belongs: {row['prints']!r}; some clients do not bear that")
    return [
        *([(f"{counted(len(off), 'tool')} turned off: {', '.join(off)}", "dim")] if off else []),
        *((line, "yellow") for line in lines),
        *([(row["advice"], "cyan")] if "advice" in row else []),
    ]
