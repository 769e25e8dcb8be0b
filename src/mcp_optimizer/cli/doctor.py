"""`servers` and `doctor`: the state of the configured servers, and how to fix what is wrong.

`doctor` tries every server once that is not known to work. With `--fix` it shows the corrections that need no guess,
asks, and writes them; all other bytes of the server file are kept, and a file that changed in between is left alone.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_gateway import (
    FreshFlag,
    Inquiry,
    of_command,
    run,
    started,
    waited_for,
    with_installed_parts,
)
from mcp_optimizer.cli.command_options import JsonFlag, complete_server, with_settings
from mcp_optimizer.cli.server_advice import advise
from mcp_optimizer.cli.terminal import console, definition_costs, print_json, say_next
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import CatalogError, ConfigurationError, listed
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, span

if TYPE_CHECKING:
    from rich.text import Text

    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.config.serverfile.file_edits import EntryFix


def changes_of(row: dict[str, Any]) -> list[str]:
    """Tools and instructions that differ from what was approved, for a person."""
    held, announced, said = row.get("held", []), row.get("announced", []), row.get("instructions")
    return [
        *([f"{counted(len(held), 'tool')} held until approved"] if held else []),
        *([f"{counted(len(announced), 'tool')} changed since approved"] if announced else []),
        *([f"instructions {'held until' if said['held'] else 'changed since'} approved"] if said else []),
    ]


_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Corrections:
    """What can be corrected in a server file, and the content it was found in."""

    file: Path
    content: bytes
    entries: tuple[EntryFix, ...] = ()
    opens_secrets: bool = False
    """Whether the file has keys and other users can read it."""

    @property
    def lines(self) -> list[str]:
        """A line for each correction, for people."""
        shown = [in_a_line(f"{fix.server}: {fix.says}") for fix in self.entries]
        return [*shown, f"let only you read {self.file}, which has keys"] if self.opens_secrets else shown


def corrections(settings: Settings) -> Corrections | None:
    """The corrections of the configured server file; None if it needs none, or cannot be read."""
    from mcp_optimizer.config.serverfile.file_edits import entry_fixes
    from mcp_optimizer.config.serverfile.parser import parse_server_file, servers_of
    from mcp_optimizer.config.serverfile.recognised_servers import SAME_FILE
    from mcp_optimizer.config.textfiles.kinds import LARGEST, FileKind, UnreadableText
    from mcp_optimizer.config.textfiles.reading import parsed
    from mcp_optimizer.runtime.local_files import read_regular

    if settings.demo:
        return None
    path = settings.server_file
    try:
        content = read_regular(path, LARGEST[FileKind.JSON])
        settings.check_server_file(path, content)
        text = content.decode("utf-8-sig")
        document = parsed(text, FileKind.JSON)
        specs = parse_server_file(text, path, os.environ)
    except (OSError, UnicodeDecodeError, UnreadableText, ConfigurationError):
        # Reading the servers reports why.
        return None
    themselves = {spec.name for spec in specs if spec.problem.startswith(SAME_FILE)}
    # From the raw document: an entry with a mistake may have keys, too.
    entries = servers_of(document, path)[1].values()
    has_keys = any(isinstance(entry, dict) and (entry.get("env") or entry.get("headers")) for entry in entries)
    found = Corrections(path, content, tuple(entry_fixes(document, themselves)), has_keys and _is_open(path))
    return found if found.lines else None


def _is_open(path: Path) -> bool:
    """Whether we own the file and other users can read it."""
    if not hasattr(os, "getuid"):
        return False
    found = path.stat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and bool(found.st_mode & _OTHERS)


def fix(found: Corrections, *, yes: bool) -> bool:
    """Show the corrections on stderr, ask unless `yes`, and write them. Returns whether they were written."""
    print(f"{found.file}:", file=sys.stderr)
    for line in found.lines:
        print(f"  {line}", file=sys.stderr)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(
                "There is no terminal to ask at. If these corrections are right, repeat it with --yes."
            )
        if not typer.confirm("Make these corrections?", err=True):
            return False
    _write(found)
    return True


def _write(found: Corrections) -> None:
    from mcp_optimizer.config.textfiles.editing import CannotEdit
    from mcp_optimizer.config.textfiles.writing import replace_file
    from mcp_optimizer.config.trusted_files import carry_over

    try:
        if found.entries:
            text = edited(found.content.decode(), found.entries)
            replace_file(found.file, text, expected=found.content)
            carry_over(found.file, found.content, text.encode())
        if found.opens_secrets:
            found.file.chmod(0o600)
    except (OSError, CannotEdit) as error:
        raise ConfigurationError(f"{found.file} stays as it is: {error}.") from error


def edited(text: str, fixes: Sequence[EntryFix]) -> str:
    """The text with all corrections, every other byte kept."""
    from mcp_optimizer.config.textfiles.editing import with_value, without_value
    from mcp_optimizer.config.textfiles.kinds import FileKind

    for one in fixes:
        if one.removes:
            text = without_value(text, FileKind.JSON, one.path)
        else:
            text = with_value(text, FileKind.JSON, one.path, one.value)
    return text


_WIDEST_NAME = 24
"""Columns for names; longer ones wrap."""
_MARKS = {
    "running": ("✓", "green"),
    "starts when needed": ("○", "green"),
    "failed": ("✗", "red"),
    "stopped": ("-", "dim"),
    "starting": ("…", "yellow"),
    "login needed": ("!", "yellow"),
}
_IN_ORDER = ("running", "starts when needed", "stopped")
_NO_SERVERS = "No servers are configured, so there is nothing to find or call."
_ALL_DISABLED = "Every server is disabled, so there is nothing to find or call."


_Fix = Annotated[
    bool, typer.Option("--fix", help="Correct the problems in the server file that need no guess, after asking.")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --fix: do not ask.")]


_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SERVER]...", help="Only these servers.", show_default=False, autocompletion=complete_server
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(servers)
    app.command()(doctor)


@with_settings()
def servers(
    names: _Names = None,
    *,
    settings: Settings,
    flags: frozenset[str],
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List the configured servers, their state and the cost of their tools."""
    from mcp_optimizer.app.control.command_requests import ServersRequest

    begin = partial(started, shows_servers=True)
    rows = Inquiry(settings, flags, fresh).answer(ServersRequest(), begin, shows_servers=True)
    _refuse_unknown(names or (), [row["name"] for row in rows])
    rows = [row for row in rows if not names or row["name"] in names]
    if as_json:
        print_json({"servers": rows})
    else:
        _show_servers(rows)


def _refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(f"There is no server {unknown[0]!r}. Servers: {listed(known) or 'none'}.")


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
        told = Text(in_a_line(said), style="yellow")
        if apart := _apart(row):
            told.append(f"{'; ' if said else ''}{apart}", style="dim")
        table.add_row(*map(Text, texts), told)
    console().print(table)


def _apart(row: dict[str, Any]) -> str:
    """What clients that share a gateway have of a server each for themselves."""
    running = row.get("sessions", 0)
    if row.get("each_client_has_its_own"):
        return f"each client has its own: {running:,} running" if running else "each client has its own"
    return f"{running:,} running, for clients that need their own" if running > 1 else ""


@with_settings()
def doctor(
    names: _Names = None,
    *,
    settings: Settings,
    flags: frozenset[str],
    mend: _Fix = False,
    yes: _Yes = False,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Check every server; report problems and how to fix them. Exit code 1 if there are any.

    Servers that run in a gateway, or started within the last hour, are not started again without --fresh.
    """
    found = corrections(settings)
    fixed = found.lines if found is not None and mend and fix(found, yes=yes) else []
    left = found.lines if found is not None and not fixed else []
    if not run(_doctor(Inquiry(settings, flags, fresh), names or [], as_json, fixed, left)):
        sys.exit(1)


async def _doctor(inquiry: Inquiry, names: list[str], as_json: bool, fixed: list[str], left: list[str]) -> bool:
    """`fixed` was corrected in the server file just now; `left` could be."""
    from mcp_optimizer.app.command_start import remember_failures
    from mcp_optimizer.app.control.command_facts import server_facts

    settings = inquiry.settings
    optimizer, works = await _checked(inquiry, names)
    async with waited_for(optimizer):
        states = optimizer.servers()
        await remember_failures(optimizer, states)
        rows = [server_facts(optimizer.snapshot, state) for state in states]
        broken = await _broken_scripts(optimizer)
    for row, state in zip(rows, states, strict=True):
        if advice := advise(state):
            row["advice"] = advice
        if state.is_resting:
            row["worked_at"] = datetime.fromtimestamp(works[state.name], UTC).isoformat(timespec="seconds")
    about = _about_all(rows, settings)
    missing = with_installed_parts(settings)[1]
    healthy = not (about or broken or missing) and all(row["status"] in _IN_ORDER for row in rows)
    beside = other_package(distribution_files)
    if as_json:
        about |= {"environment": beside} if beside else {}
        did = {key: lines for key, lines in (("fixed", fixed), ("fixable", left)) if lines}
        found = {key: told for key, told in (("scripts", broken), ("missing", missing)) if told}
        print_json({"healthy": healthy, "servers": rows, **about, **found, **did})
    else:
        _show(rows, about)
        _show_total(rows)
        _show_scripts(broken)
        if missing:
            console().print(f"scripts = {settings.scripts}: {missing}", style="red", soft_wrap=True, markup=False)
        _show_fixes(fixed, left)
        if beside:
            console().print(beside, style="yellow", soft_wrap=True)
    return healthy


async def _checked(inquiry: Inquiry, names: list[str]) -> tuple[Optimizer, Mapping[str, float]]:
    """A gateway that tries the servers that are not known to work, and when the others were known to."""
    from mcp_optimizer.app.command_start import checking_optimizer, starting_optimizer
    from mcp_optimizer.app.control.command_requests import ServersRequest

    # One attempt each: a restart would hide the first error.
    patient = of_command(inquiry.settings).model_copy(
        update={
            "restart_pause": 3_600.0,
            "restart_pause_max": 3_600.0,
            "wait": inquiry.settings.start_timeout + 10,
            **({"servers": ",".join(names)} if names else {}),
        }
    )
    if inquiry.fresh:
        # Whether servers work is what is asked: all of them start.
        return starting_optimizer(patient), {}
    running = [row["name"] for row in inquiry.asked(ServersRequest()) or [] if row["status"] == "running"]
    return await checking_optimizer(patient, running)


def distribution_files(name: str) -> Sequence[str] | None:
    """The files of a distribution that is installed in this environment, or None."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        return [str(file) for file in files(name) or ()]
    except PackageNotFoundError:
        return None


def other_package(files_of: Callable[[str], Sequence[str] | None]) -> str:
    """What to do if the package whose name is like ours has put its files over ours."""
    if "mcp_optimizer/__init__.py" not in (files_of("mcp-optimizer") or ()):
        return ""
    return (
        "Another package, `mcp-optimizer`, is installed in this environment, and both have the command `mcp-optimizer` "
        "and the import package `mcp_optimizer`. `mcp-optimizer-gateway` starts this one in any case. Give each an "
        "environment of its own: uv tool install mcp-optimizer-gateway"
    )


async def _broken_scripts(optimizer: Optimizer) -> list[dict[str, str]]:
    """Stored scripts that must be saved again."""
    scripts = optimizer.parts.stored_scripts
    if scripts is None:
        return []
    from mcp_optimizer.app.control.command_facts import script_rows

    try:
        rows = await script_rows(scripts)
    except CatalogError:
        # Without the database there are none; the failure to open it is already logged.
        return []
    return [{"name": row["name"], "reason": row["reason"]} for row in rows if row["state"] == "broken"]


def _about_all(rows: list[dict[str, Any]], settings: Settings) -> dict[str, str]:
    """What is wrong with the gateway as a whole, if nothing can be found or called although no server has a problem."""
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
    failed = sum(row["status"] not in _IN_ORDER for row in rows)
    out.print(f"{counted(len(rows), 'server')}, {f'{failed} with a problem' if failed else 'no problems'}")


def _show_total(rows: list[dict[str, Any]]) -> None:
    # A gateway of an earlier version says nothing about what is sent.
    tools, tokens, sent = (sum(row.get(key, 0) for row in rows) for key in ("tools", "tokens", "sent_tokens"))
    if tools:
        console().print(definition_costs(tools, tokens, sent or tokens), soft_wrap=True)
        say_next("mcp-optimizer connect CLIENT   (puts the gateway into a client)", "mcp-optimizer find REQUEST")


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
    """Everything about one server, one line per fact."""
    from rich.text import Text

    told = Text()
    if row["status"] == "running" or "worked_at" in row:
        told.append(f"{counted(row['tools'], 'tool')}, {row['tokens']:,} tokens")
        version = in_a_line(row.get("version", ""))
        facts = [_proof(row), f"MCP {row['protocol']}", *([version] if version else [])]
        told.append("\n" + ", ".join(facts), style="dim")
    else:
        told.append(in_a_line(row.get("reason", row["status"])))
    for line, style in _details(row):
        told.append("\n" + in_a_line(line), style=style)
    return told


def _proof(row: dict[str, Any]) -> str:
    """How it is known that a server works."""
    if "worked_at" not in row:
        return f"up in {row['started_in_s']} s"
    age = (datetime.now(UTC) - datetime.fromisoformat(row["worked_at"])).total_seconds()
    return f"worked {span(max(0.0, age))} ago"


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
