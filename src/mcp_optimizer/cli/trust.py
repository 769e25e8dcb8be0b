"""`trust list`, `diff`, `approve` and `reset`: servers' tools and instructions as they were approved, and what changed
since.

Reads and writes the catalog database; starts no server. A running gateway notices within seconds.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError, OptimizerError, listed, quoted
from mcp_optimizer.runtime.terminal_text import counted

if TYPE_CHECKING:
    from rich.text import Text

    from mcp_optimizer.access.trust.review import ServerOverview, ToolOverview
    from mcp_optimizer.db.pins import StoredPins
    from mcp_optimizer.domain.pins import Pins

_MOST_DIFFS = 20

_Server = Annotated[str, typer.Argument(help="The server's name in the server file.", show_default=False)]
_AnyServer = Annotated[str, typer.Argument(metavar="[SERVER]", help="Only this server, with all of its tools.")]
_AnyTool = Annotated[str, typer.Argument(metavar="[TOOL]", help="Only this tool.")]
_Tools = Annotated[list[str] | None, typer.Argument(metavar="[TOOL]...", help="The tools to approve.")]
_All = Annotated[bool, typer.Option("--all", help="Everything that waits, also another command or URL.")]
_Instructions = Annotated[bool, typer.Option("--instructions", help="The server's instructions.")]
_Shown = Annotated[str, typer.Option("--shown", help="Only if it is still what `trust diff` showed, by its version.")]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="What servers' tools were when they were approved.")
    for name, command in (("list", list_pins), ("diff", diff), ("approve", approve), ("reset", reset)):
        group.command(name)(command)
    app.add_typer(group, name="trust")


@with_settings()
def list_pins(server: _AnyServer = "", *, settings: Settings, as_json: JsonFlag = False) -> None:
    """List which tools are approved, changed or new, and notes on suspicious ones."""
    run(_list(settings, server, as_json))


@with_settings()
def diff(server: _Server, tool: _AnyTool = "", *, settings: Settings) -> None:
    """Show what changed since the approval, of one tool or of a whole server."""
    run(_diff(settings, server, tool))


@with_settings()
def approve(
    server: _Server,
    tools: _Tools = None,
    *,
    settings: Settings,
    everything: _All = False,
    instructions: _Instructions = False,
    shown: _Shown = "",
) -> None:
    """Approve changed and new tools, or instructions, as they are now. A running gateway uses them within seconds."""
    from mcp_optimizer.domain.pins import INSTRUCTIONS

    names = [*(tools or []), *([INSTRUCTIONS] if instructions else [])]
    run(_approve(settings, server, names, everything=everything, shown=shown))


@with_settings()
def reset(server: _Server, *, settings: Settings) -> None:
    """Forget a server's approvals; its next list counts as approved."""
    run(_reset(settings, server))


@asynccontextmanager
async def _stored(settings: Settings) -> AsyncIterator[StoredPins]:
    from mcp_optimizer.app.setting_values import place_of
    from mcp_optimizer.db.database import open_database
    from mcp_optimizer.db.pins import StoredPins

    database = await open_database(place_of(settings, "Approvals"))
    try:
        yield StoredPins(database)
    finally:
        await database.close()


async def _pins(stored: StoredPins, server: str) -> Pins:
    pins = await stored.whole(server)
    if pins.approved is None:
        known = await stored.servers()
        raise ConfigurationError(
            f"No tools of a server {quoted(server)} were approved yet.{_nearest(server, known)} "
            "`mcp-optimizer trust list` lists all servers."
        )
    return pins


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name[:100], list(dict.fromkeys(names)), n=3)
    return f" Nearest: {listed(near)}." if near else ""


async def _list(settings: Settings, server: str, as_json: bool) -> None:
    from mcp_optimizer.access.trust.review import overview

    async with _stored(settings) as stored:
        names = [server] if server else await stored.servers()
        pins = {name: await (_pins(stored, name) if server else stored.whole(name)) for name in names}
    found = overview(pins, _modes(settings))
    if as_json:
        print_json({"servers": [_server_facts(one) for one in found]})
    else:
        _show(found, whole=bool(server))


def _modes(settings: Settings) -> dict[str, Any]:
    from mcp_optimizer.app.servers import server_specs
    from mcp_optimizer.app.setting_values import trust_modes

    try:
        return dict(trust_modes(settings, server_specs(settings)))
    except OptimizerError:
        # Without a server file, only the stored approvals are known.
        return {}


def _server_facts(server: ServerOverview) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "server": server.name,
        "mode": server.mode,
        "state": "changed" if server.waiting is not None else "approved",
        "approved_as": server.approved.shown,
        "approved_at": _moment(server.approved.at_ms),
        "tools": [_tool_facts(tool) for tool in server.tools],
    }
    if server.instructions is not None:
        facts["instructions"] = _pin_facts(server.instructions)
    if server.waiting is not None:
        facts["now"] = server.waiting.shown
        facts["changed_at"] = _moment(server.waiting.at_ms)
    return facts


def _tool_facts(tool: ToolOverview) -> dict[str, Any]:
    return {"tool": tool.name, **_pin_facts(tool)}


def _pin_facts(tool: ToolOverview) -> dict[str, Any]:
    return {
        "state": tool.state,
        "since": _moment(tool.since_ms),
        "by": tool.by,
        "notes": list(tool.notes),
    }


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _show(servers: Sequence[ServerOverview], *, whole: bool) -> None:
    """One line per server, each followed by its tools: all, or those that need a review."""
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    widest = max((len(server.name) for server in servers), default=0)
    for server in servers:
        waits = server.unapproved
        state = "server changed" if server.waiting is not None else f"{len(waits)} unapproved" if waits else "approved"
        since = f"since {_day(server.approved.at_ms)}"
        about = ", ".join([counted(len(server.tools), "tool"), state, since, f"mode {server.mode or 'unknown'}"])
        out.print(Text.assemble((server.name.ljust(widest), "bold"), f"  {about}"))
        said = [server.instructions] if server.instructions is not None else []
        for tool in (*said, *server.tools):
            if whole or tool in waits or tool.notes:
                out.print(Padding(_tool_line(tool), (0, 0, 0, 2)))
    waiting = sum(len(server.unapproved) for server in servers)
    see = "; `mcp-optimizer trust diff SERVER` shows what changed" if waiting else ""
    out.print(f"{counted(len(servers), 'server')}, {waiting:,} unapproved{see}", markup=False)


def _tool_line(tool: ToolOverview) -> Text:
    from rich.text import Text

    from mcp_optimizer.access.trust.review import titled
    from mcp_optimizer.domain.hidden_text import with_hidden_shown

    line = Text(f"{with_hidden_shown(titled(tool.name))}: {tool.state} since {_day(tool.since_ms)}")
    if tool.notes:
        line.append("; " + with_hidden_shown("; ".join(tool.notes)), style="yellow")
    return line


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


async def _diff(settings: Settings, server: str, tool: str) -> None:
    from mcp_optimizer.access.trust.pins import unpacked, versions_of
    from mcp_optimizer.access.trust.review import difference, digest, titled
    from mcp_optimizer.domain.pins import ToolPin

    async with _stored(settings) as stored:
        pins = await _pins(stored, server)
    waiting = pins.waiting_tools
    if tool and tool not in waiting:
        _say_unchanged(server, tool, pins)
        return
    names = [tool] if tool else sorted(waiting)
    moved = pins.waiting if pins.waiting is not None and not tool else None
    if moved is not None and pins.approved is not None:
        _print_diff(f"{server}: its command or URL", [f"-{pins.approved.shown}", f"+{moved.shown}"])
    for name in names[:_MOST_DIFFS]:
        change = "changed" if name in pins.tools else "new"
        lines = difference(unpacked(pins.tools.get(name, ToolPin(""))), unpacked(waiting[name]))
        _print_diff(f"{server} {titled(name)}: {change} since {_moment(waiting[name].at_ms)}", lines)
    if not names and moved is None:
        print("Nothing changed since it was approved.")
        return
    if len(names) > _MOST_DIFFS:
        print(f"… and {len(names) - _MOST_DIFFS:,} more; name a tool to see it.")
    version = digest(versions_of({name: waiting[name] for name in names}), moved.identity if moved is not None else "")
    chosen = shlex.quote(tool) if tool else "--all"
    print(f"Approve exactly this: mcp-optimizer trust approve {shlex.quote(server)} {_shown(chosen)} --shown {version}")


def _say_unchanged(server: str, tool: str, pins: Pins) -> None:
    if tool not in pins.tools:
        near = _nearest(tool, [*pins.tools, *pins.waiting_tools])
        raise ConfigurationError(f"Server {quoted(server)} has no tool {quoted(tool)}.{near}")
    if pins.waiting is not None:
        print(f"The tool is the same, but its server changed: mcp-optimizer trust diff {shlex.quote(server)}")
    else:
        print(f"Nothing changed since it was approved ({_moment(pins.tools[tool].at_ms)}).")


def _shown(text: str) -> str:
    from mcp_optimizer.domain.hidden_text import with_hidden_shown

    return with_hidden_shown(text)


def _print_diff(title: str, lines: Sequence[str]) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(_shown(title), style="bold"))
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        out.print(Text(_shown(line), style=styles.get(line[:1], "")), soft_wrap=True)


async def _approve(settings: Settings, server: str, tools: list[str], *, everything: bool, shown: str) -> None:
    from mcp_optimizer.access.trust.pins import versions_of
    from mcp_optimizer.access.trust.review import digest, titled, told
    from mcp_optimizer.domain.pins import INSTRUCTIONS

    async with _stored(settings) as stored:
        pins = await _pins(stored, server)
        names = sorted(pins.waiting_tools) if everything else tools
        _check_choice(server, tools, pins, everything=everything)
        wanted = versions_of({name: pins.waiting_tools[name] for name in names})
        identity = pins.waiting.identity if pins.waiting is not None and everything else ""
        if shown and shown != digest(wanted, identity):
            raise ConfigurationError(
                f"It has changed since it was shown. Look again: mcp-optimizer trust diff {shlex.quote(server)}"
            )
        # By version, so that a change made at this moment is not approved with it.
        approved = await stored.approve(server, wanted, "local", identity)
    if approved or identity:
        await record_act(settings, "trust/approve", told(approved, is_moved=bool(identity)), server)
    moved = " and its command or URL" if identity else ""
    named = f": {_shown(listed([*map(titled, approved)]))}" if approved else ""
    changes = counted(len(approved), "change" if INSTRUCTIONS in approved else "tool")
    print(f"Approved {changes} of {quoted(server)}{moved}{named}.")


def _check_choice(server: str, tools: Sequence[str], pins: Pins, *, everything: bool) -> None:
    from mcp_optimizer.domain.pins import INSTRUCTIONS

    waiting = pins.waiting_tools
    if not waiting and pins.waiting is None:
        raise ConfigurationError(f"Nothing of server {quoted(server)} waits for approval.")
    if everything and tools:
        raise ConfigurationError("Name what to approve, or use --all, not both.")
    if everything:
        return
    if pins.waiting is not None:
        raise ConfigurationError(
            f"The command or URL of server {quoted(server)} changed, so all of its tools wait. Look at it with "
            f"`mcp-optimizer trust diff {shlex.quote(server)}`, and approve everything with --all."
        )
    if not tools:
        names = [name or "--instructions" for name in sorted(waiting)]
        raise ConfigurationError(f"Name the tools to approve, or use --all. Waiting: {listed(names)}.")
    for name in tools:
        if name == INSTRUCTIONS and name not in waiting:
            raise ConfigurationError(f"The instructions of server {quoted(server)} do not wait for approval.")
        if name not in waiting:
            raise ConfigurationError(
                f"The tool {quoted(name)} of server {quoted(server)} does not wait for approval."
                f"{_nearest(name, waiting)}"
            )


async def _reset(settings: Settings, server: str) -> None:
    async with _stored(settings) as stored:
        await _pins(stored, server)
        await stored.reset(server)
    await record_act(settings, "trust/reset", server=server)
    print(f"Forgotten. What {quoted(server)} lists next counts as approved.")
