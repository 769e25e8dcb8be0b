"""`script try`, `save`, `list`, `show`, `run` and `delete`: scripts, run once or kept under a name like a tool.

A running gateway checks, saves and runs them if there is one; otherwise the servers are started for it. Listing,
showing and deleting need only the database, even while scripts are off. A script's text cannot control the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import FreshFlag, Inquiry, run, with_installed_parts
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.own_tools import SCRIPTS_OFF
from mcp_optimizer.errors import ConfigurationError, GatewayFailure, listed, quoted
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, printable

if TYPE_CHECKING:
    from mcp_optimizer.db.scripts import ScriptRows
    from mcp_optimizer.domain.stored_script import StoredScript


def tell_saved(saved: dict[str, Any]) -> None:
    takes = ", ".join(saved["parameters"]) or "nothing"
    uses = ", ".join(saved["uses"]) or "no tools"
    print(in_a_line(f"Saved. It is the tool {saved['name']} of the server {saved['server']}."))
    print(in_a_line(f"It takes {takes}; it uses {uses}; it counts as {saved['risk']}."))


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for title in ("script", "state", "class", "parameters"):
        table.add_column(title, overflow="fold")
    table.add_column("description", overflow="fold", ratio=1)
    for row in rows:
        texts = (row["name"], row["state"], row["risk"], ", ".join(row["parameters"]), row["description"])
        table.add_row(*map(Text, map(in_a_line, texts)))
    out = console()
    if rows:
        out.print(table)
    for row in rows:
        if row["reason"]:
            out.print(Text(in_a_line(f"{row['name']}: {row['reason']}"), style="yellow"), soft_wrap=True)
    out.print(counted(len(rows), "stored script"), markup=False)


def show_script(facts: dict[str, Any], source: str) -> None:
    for title, value in (
        ("name", facts["name"]),
        ("description", facts["description"]),
        ("parameters", ", ".join(facts["parameters"]) or "none"),
        ("uses", ", ".join(facts["uses"]) or "no tools"),
        ("may change", ", ".join(facts["may_change"]) or "nothing"),
        ("class", facts["risk"]),
        ("saved", facts["saved_at"]),
    ):
        print(f"{title + ':':<13}{in_a_line(value)}")
    print(f"\n{printable(source)}")


_MOST_LISTED = 10_000

_Name = Annotated[str, typer.Argument(help="The script's name.", show_default=False)]
_File = Annotated[str, typer.Argument(help="The file with the script; - reads stdin.", show_default=False)]
_Description = Annotated[
    str, typer.Option("--description", help="Its purpose, in one line. Models find it by this.", show_default=False)
]
_Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME:TYPE[=DEFAULT]",
        help="A value that the caller gives, as often as needed. Default: the names that the script uses but never "
        "sets.",
    ),
]
_MayChange = Annotated[
    list[str] | None,
    typer.Option(
        "--may-change", metavar="TOOL", help="A tool that it may use even though the tool can change something."
    ),
]
_Replace = Annotated[bool, typer.Option("--replace", help="Replace the script of this name.")]
_Source = Annotated[bool, typer.Option("--source", help="Print only the script itself.")]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Scripts that call tools: try one, or keep it as a tool.")
    kept = (("save", save), ("list", list_scripts), ("show", show), ("run", run_script), ("delete", delete))
    for name, command in (("try", try_script), *kept):
        group.command(name)(command)
    app.add_typer(group, name="script")


@with_settings()
def try_script(
    file: _File,
    *,
    settings: Settings,
    flags: frozenset[str],
    may_change: _MayChange = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a script once, as a model does with run_script. Exit code 1 if it fails."""
    from mcp_optimizer.app.control.command_requests import TryScriptRequest
    from mcp_optimizer.cli.tools import answer

    inquiry = _inquiry(settings, flags, fresh=fresh)
    text = _text(file, settings.limits.script_characters)
    answer(inquiry.answer(TryScriptRequest(script=text, may_change=tuple(may_change or ()))), as_json)


@with_settings()
def save(
    name: _Name,
    file: _File,
    *,
    settings: Settings,
    flags: frozenset[str],
    description: _Description = "",
    param: _Parameters = None,
    may_change: _MayChange = None,
    replace: _Replace = False,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Check a script and keep it under a name. Clients find and call it as a tool within seconds."""
    from mcp_optimizer.app.control.command_requests import SaveScriptRequest

    inquiry = _inquiry(settings, flags, fresh=fresh)
    request = SaveScriptRequest(
        name=name,
        source=_text(file, settings.limits.script_characters),
        description=description,
        parameters=None if param is None else tuple(param),
        may_change=tuple(may_change or ()),
        replaces=replace,
    )
    saved = inquiry.answer(request)
    run(record_act(settings, "script/save", name))
    if as_json:
        print_json(saved)
    else:
        tell_saved(saved)


@with_settings()
def list_scripts(
    *, settings: Settings, flags: frozenset[str], fresh: FreshFlag = False, as_json: JsonFlag = False
) -> None:
    """List the stored scripts. A running gateway says which can be called; so do the servers, with --fresh."""
    found = _states(Inquiry(settings, flags, fresh))
    rows = run(_stored_rows(settings)) if found is None else found
    if as_json:
        print_json({"scripts": rows})
    else:
        show_rows(rows)
    if found is None and settings.scripts == "off":
        print(f"note: {SCRIPTS_OFF}", file=sys.stderr)


@with_settings()
def show(name: _Name, *, settings: Settings, only_source: _Source = False, as_json: JsonFlag = False) -> None:
    """Show a stored script: its parameters, its tools and its source."""
    from mcp_optimizer.app.control.command_facts import script_facts

    script = run(_named(settings, name))
    if as_json:
        print_json({**script_facts(script), "source": script.source})
    elif only_source:
        sys.stdout.write(printable(script.source) + ("" if script.source.endswith("\n") else "\n"))
    else:
        show_script(script_facts(script), script.source)


@with_settings()
def run_script(
    name: _Name,
    arguments: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="Its arguments, as a JSON object.", show_default=False)
    ] = None,
    *,
    settings: Settings,
    flags: frozenset[str],
    args: Annotated[str | None, typer.Option(help="The same: JSON, @FILE, or - for stdin.", metavar="JSON")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(help="One argument, as often as needed; its type is the parameter's.", metavar="KEY=VALUE"),
    ] = None,
    select: Annotated[str, typer.Option(help="JMESPath: return only this part of a JSON result.")] = "",
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a stored script, as `call` runs a tool. Exit code 1 if it fails."""
    from mcp_optimizer.app.control.command_requests import RunScriptRequest
    from mcp_optimizer.cli.tools import answer, given_arguments, pairs

    inquiry = _inquiry(settings, flags, fresh=fresh)
    plain = pairs(arg or [])
    given = given_arguments(arguments, args, is_object=bool(plain))
    answer(inquiry.answer(RunScriptRequest(name=name, arguments=given, plain=plain, select=select)), as_json)


@with_settings()
def delete(name: _Name, *, settings: Settings) -> None:
    """Delete a stored script. A running gateway forgets it within two seconds."""
    run(_delete(settings, name))
    print("Deleted. A running gateway forgets it within two seconds.")


def _inquiry(settings: Settings, flags: frozenset[str], *, fresh: bool) -> Inquiry:
    """The gateway to ask. Raises ConfigurationError if none runs and scripts are off here, or cannot run."""
    inquiry = Inquiry(settings, flags, fresh)
    if not inquiry.is_running:
        if settings.scripts == "off":
            raise ConfigurationError(SCRIPTS_OFF)
        if missing := with_installed_parts(settings)[1]:
            raise ConfigurationError(missing)
    return inquiry


def _text(file: str, most: int) -> str:
    """The script as text. Reads no more than may be stored: a character has at most four bytes."""
    room = 4 * most + 1
    try:
        if file == "-":
            given = sys.stdin.buffer.read(room)
        else:
            with Path(file).open("rb") as opened:
                given = opened.read(room)
        text = given.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"Cannot read the script {quoted(file)}: {error.strerror}.") from None
    except UnicodeDecodeError:
        if len(given) < room:
            raise ConfigurationError(f"The script {quoted(file)} is not UTF-8 text.") from None
        text = " " * room
    if len(text) > most:
        raise ConfigurationError(f"The script has more than {most:,} characters (limits.script_characters).")
    return text.replace("\r\n", "\n")


@asynccontextmanager
async def _stored(settings: Settings) -> AsyncIterator[ScriptRows]:
    from mcp_optimizer.app.setting_values import place_of
    from mcp_optimizer.db.database import open_database
    from mcp_optimizer.db.scripts import ScriptRows

    database = await open_database(place_of(settings, "Stored scripts"))
    try:
        yield ScriptRows(database)
    finally:
        await database.close()


async def _named(settings: Settings, name: str) -> StoredScript:
    async with _stored(settings) as stored:
        script = await stored.named(name)
        if script is None:
            raise await _unknown(stored, name)
        return script


async def _delete(settings: Settings, name: str) -> None:
    async with _stored(settings) as stored:
        if not await stored.delete(name):
            raise await _unknown(stored, name)
    await record_act(settings, "script/delete", name)


async def _unknown(stored: ScriptRows, name: str) -> ConfigurationError:
    known = [script.name for script in await stored.all(_MOST_LISTED)]
    return ConfigurationError(f"There is no stored script {quoted(name)}. Stored: {listed(known) or 'none'}.")


def _states(inquiry: Inquiry) -> list[dict[str, Any]] | None:
    """All scripts with their states; None if no gateway knows the tools, or scripts are off there."""
    from mcp_optimizer.app.control.command_requests import ScriptsRequest

    if not inquiry.is_running and (not inquiry.fresh or inquiry.settings.scripts == "off"):
        return None
    try:
        rows: list[dict[str, Any]] = inquiry.answer(ScriptsRequest())
    except GatewayFailure as failure:
        if str(failure) == SCRIPTS_OFF:
            return None
        raise
    return rows


async def _stored_rows(settings: Settings) -> list[dict[str, Any]]:
    from mcp_optimizer.app.control.command_facts import NOT_CHECKED, script_facts

    async with _stored(settings) as stored:
        found = await stored.all(_MOST_LISTED)
    return [{**script_facts(script), "state": NOT_CHECKED, "reason": ""} for script in found]
