"""`connect` and `disconnect`: our entry in the files of MCP clients. Starts no server.

Shows each change as a diff and asks before making it. Prints names and our own entry, never values of other entries.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.client_environment import backups_of, run_client, this_machine, this_program, variables_of
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import JsonFlag, complete_client, with_settings
from mcp_optimizer.cli.terminal import console, print_json, say_next
from mcp_optimizer.config.settings import Settings, own_server_file
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.terminal_text import in_a_line, printable

if TYPE_CHECKING:
    from mcp_optimizer.config.clients.connecting import FileChange
    from mcp_optimizer.config.known_clients.entry_spelling import OurGateway
    from mcp_optimizer.config.known_clients.program import ClientProgram

_NAMED = 5


@dataclass(frozen=True)
class ClientOutcome:
    """What is planned for a client, or what was done."""

    client: ClientProgram
    status: str
    """connect, disconnect, restore (planned); connected, disconnected, restored (done); unchanged; failed."""
    change: FileChange | None = None
    command: Sequence[str] = ()
    """The client's own command for the change."""
    note: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in ("connect", "disconnect", "restore")

    @property
    def planned(self) -> FileChange:
        """The change of an outcome that is still open."""
        assert self.change is not None
        return self.change


def warn(text: str) -> None:
    print(f"warning: {in_a_line(text)}", file=sys.stderr)


def show_plan(outcomes: Sequence[ClientOutcome], name: str) -> None:
    out = console()
    for one in outcomes:
        if not one.is_open or one.change is None:
            continue
        out.print(f"{one.client.title}: {one.change.place.path}", markup=False, soft_wrap=True)
        if one.command:
            out.print(f"  $ {in_a_line(shlex.join(one.command))}", markup=False, soft_wrap=True)
        elif one.change.removes_file:
            out.print("  the file is removed, because there was none before", markup=False)
        else:
            for line in _diff(one.change, name):
                out.print(f"  {printable(line)}", markup=False, soft_wrap=True)


def report(outcomes: Sequence[ClientOutcome], *, as_json: bool, dry_run: bool) -> None:
    outcomes = [one for one in outcomes if one.status]
    if as_json:
        print_json({"clients": [_as_json(one, dry_run) for one in outcomes]})
        return
    out = console()
    for one in outcomes:
        if text := _sentence(one, len(outcomes) > 1):
            out.print(in_a_line(text), markup=False, soft_wrap=True)
        if one.status in ("connect", "connected") and one.change is not None and one.change.others:
            warn(_about_others(one))
    if any(one.status == "connected" for one in outcomes):
        say_next("restart the client and ask it for something", "mcp-optimizer report   (after a day of use)")


def _sentence(one: ClientOutcome, is_one_of_many: bool) -> str:
    also = f" ({one.note})" if one.note else ""
    if one.status == "connected":
        return f"Connected {one.client.title}{also}. Restart it, or reload its servers."
    if one.status == "disconnected":
        return f"Disconnected {one.client.title}{also}."
    if one.status == "restored":
        names = ", ".join(one.planned.restored) or "nothing, because all of it is there"
        how = "" if one.planned.is_exact else ", one by one, because the file was changed meanwhile"
        return f"Put back in {one.client.title}'s file{how}: {names}. They are still in your server file, too."
    if one.status == "unchanged":
        return f"{one.client.title} {one.note}; nothing was changed."
    if one.status == "failed":
        # A single failure is raised as the error of the command.
        return f"{one.note}" if is_one_of_many else ""
    return f"{one.client.title}: nothing was written yet."


def _about_others(one: ClientOutcome) -> str:
    assert one.change is not None
    others = one.change.others
    names = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
    return (
        f"{one.client.title} still has other servers ({names}). If they are behind mcp-optimizer too, their tools are "
        f"listed twice: mcp-optimizer import {one.client.name} --move"
    )


def _diff(change: FileChange, name: str) -> list[str]:
    from mcp_optimizer.config.clients.applying import shown_change

    ours = [name, change.entry, change.restored]
    return shown_change(change.before, change.text, str(change.place.path), change.place.kind, ours)


def _as_json(one: ClientOutcome, dry_run: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"client": one.client.name, "status": one.status}
    if one.change is not None:
        shown |= {"file": str(one.change.place.path), "other_servers": list(one.change.others)}
        if dry_run and one.is_open:
            shown["diff"] = _diff(one.change, one.change.name)
    if one.command:
        shown["command"] = list(one.command)
    return shown | ({"note": one.note} if one.note else {})


_NAME = regex(r"[A-Za-z0-9_-]{1,64}")

_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")

Client = Annotated[
    str,
    typer.Argument(metavar="[CLIENT]", help="A client, such as cursor or claude-code.", autocompletion=complete_client),
]
AllFlag = Annotated[bool, typer.Option("--all", help="Every client that is installed here.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
NameOption = Annotated[str, typer.Option("--name", help="The name of our entry in the client's file.")]
ProjectFlag = Annotated[bool, typer.Option("--project", help="The client's file of this folder, not of the user.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
FileFlag = Annotated[bool, typer.Option("--file", help="Edit the file, even if the client has a command for it.")]


@dataclass(frozen=True)
class ConnectChoices:
    """The user's options."""

    name: str
    dry_run: bool
    in_project: bool
    yes: bool
    by_file: bool
    as_json: bool


def register(app: typer.Typer) -> None:
    for command in (connect, disconnect):
        app.command()(command)


@with_settings()
def connect(
    client: Client = "",
    *,
    every: AllFlag = False,
    dry_run: DryRunFlag = False,
    name: NameOption = "mcp-optimizer",
    url: Annotated[
        str, typer.Option("--http", metavar="URL", help="Connect to the gateway that runs at this address.")
    ] = "",
    key_variable: Annotated[
        str, typer.Option("--key-variable", help="With --http: the variable that holds the client's key.")
    ] = "",
    project: ProjectFlag = False,
    yes: YesFlag = False,
    file: FileFlag = False,
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Put mcp-optimizer into an MCP client's file. Shows the change, asks, and keeps a copy for `disconnect`."""
    choices = ConnectChoices(name, dry_run, project, yes, file, as_json)
    gateway = _gateway(settings, url, key_variable)
    _connect(settings, _wanted(client, every, choices), gateway, choices)


@with_settings()
def disconnect(
    client: Client = "",
    *,
    every: AllFlag = False,
    dry_run: DryRunFlag = False,
    name: NameOption = "mcp-optimizer",
    project: ProjectFlag = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Also put servers back that `import --move` took from the client.")
    ] = False,
    yes: YesFlag = False,
    file: FileFlag = False,
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Take mcp-optimizer out of an MCP client's file again: byte for byte, if the file has not changed since."""
    choices = ConnectChoices(name, dry_run, project, yes, file, as_json)
    clients = _wanted(client, every, choices)
    if restore:
        _restore(settings, clients, choices)
    _disconnect(settings, clients, choices, is_restored=restore)


def _connect(settings: Settings, clients: list[ClientProgram], gateway: OurGateway, choices: ConnectChoices) -> None:
    from mcp_optimizer.config.clients.connecting import connecting

    machine, backups = this_machine(), backups_of(settings)

    def planned(client: ClientProgram) -> ClientOutcome:
        change = connecting(client, machine, gateway, choices.name, in_project=choices.in_project)
        if change.connected_as:
            return ClientOutcome(client, "unchanged", change, note=f"is connected already, as {change.connected_as!r}")
        words = client.commands.to_add(choices.name, change.entry, gateway)
        if missing := client.writing.missing(gateway):
            named = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if missing[_NAMED:] else "")
            warn(
                f"{client.title} does not pass on variables, and your server file uses {named}. Store each with "
                f"`mcp-optimizer secret set NAME`, and write ${{secret:NAME}} in {settings.server_file}"
            )
        return ClientOutcome(client, "connect", change, command=_usable(words, choices))

    def done(outcome: ClientOutcome) -> ClientOutcome:
        from mcp_optimizer.config.clients.applying import note_command, write

        change, note = outcome.planned, ""
        if outcome.command:
            note = run_client(outcome.command)
            if not note and note_command(change, backups):
                return replace(outcome, status="connected")
            note = note or f"{outcome.command[0]} did not write the entry, so the file was edited"
            # The command may have changed the file and still have failed.
            outcome = replace(planned(outcome.client), command=())
            if not outcome.is_open:
                return outcome
        write(outcome.planned, backups)
        return replace(outcome, status="connected", note=note)

    _carry_out(settings, clients, planned, done, choices, "client/connect")


def _restore(settings: Settings, clients: list[ClientProgram], choices: ConnectChoices) -> None:
    """Restore moved servers, file by file, and remove our entry from these files."""
    from pathlib import Path

    from mcp_optimizer.config.clients.applying import restoring, take_out

    machine, backups = this_machine(), backups_of(settings)
    for path in dict.fromkeys(Path(one.path) for client in clients for one in backups.moves(client.name)):

        def planned(client: ClientProgram, path: Path = path) -> ClientOutcome:
            change = restoring(client, machine, backups, path, choices.name)
            if change is None:
                return ClientOutcome(client, "unchanged", None, note="has nothing to restore")
            return ClientOutcome(client, "restore", change)

        def done(outcome: ClientOutcome) -> ClientOutcome:
            take_out(outcome.planned, backups)
            return replace(outcome, status="restored")

        owners = [client for client in clients if backups.moves(client.name, path)]
        _carry_out(settings, owners, planned, done, choices, "client/restore")


def _disconnect(
    settings: Settings, clients: list[ClientProgram], choices: ConnectChoices, *, is_restored: bool
) -> None:
    from mcp_optimizer.config.clients.applying import exact_undo, is_by_command, take_out
    from mcp_optimizer.config.clients.connecting import disconnecting

    machine, backups = this_machine(), backups_of(settings)

    def planned(client: ClientProgram) -> ClientOutcome:
        change = disconnecting(client, machine, choices.name, in_project=choices.in_project)
        if change is None:
            # A restored file was already reported.
            return ClientOutcome(client, "" if is_restored else "unchanged", note=f"has no entry {choices.name!r}")
        words = client.commands.to_remove(choices.name) if is_by_command(change, backups) else []
        return ClientOutcome(client, "disconnect", exact_undo(change, backups), command=_usable(words, choices))

    def done(outcome: ClientOutcome) -> ClientOutcome:
        change, note = outcome.planned, ""
        if outcome.command:
            note = run_client(outcome.command)
            outcome = replace(planned(outcome.client), command=())
            if not outcome.is_open:
                backups.forget(change.place.path, change.name)
                return replace(outcome, status="disconnected", change=change, note="")
        take_out(outcome.planned, backups)
        return replace(outcome, status="disconnected", note=note)

    _carry_out(settings, clients, planned, done, choices, "client/disconnect")


def _carry_out(
    settings: Settings,
    clients: list[ClientProgram],
    planned: Callable[[ClientProgram], ClientOutcome],
    done: Callable[[ClientOutcome], ClientOutcome],
    choices: ConnectChoices,
    act: str,
) -> None:
    """Plan all changes, show them, ask, make them; one that fails does not stop the others."""
    outcomes = list(_attempts(clients, planned))
    open_ones = [one for one in outcomes if one.is_open]
    if not choices.as_json:
        show_plan(outcomes, choices.name)
    if open_ones and not choices.dry_run:
        _agree(choices, len(open_ones))
        outcomes = [next(_attempts([one], done)) if one.is_open else one for one in outcomes]
        for one in outcomes:
            if one.status in ("connected", "disconnected", "restored"):
                run(record_act(settings, act, one.client.name))
    report(outcomes, as_json=choices.as_json, dry_run=choices.dry_run)
    failed = [one for one in outcomes if one.status == "failed"]
    if failed and len(clients) == 1:
        raise ConfigurationError(failed[0].note)
    if failed:
        raise typer.Exit(1)


def _attempts(items: list[Any], attempt: Callable[[Any], ClientOutcome]) -> Iterator[ClientOutcome]:
    from mcp_optimizer.config.clients.connecting import CannotConnect

    for item in items:
        client = item.client if isinstance(item, ClientOutcome) else item
        try:
            yield attempt(item)
        except CannotConnect as error:
            yield ClientOutcome(client, "failed", note=str(error))
        except OSError as error:
            yield ClientOutcome(client, "failed", note=f"{client.title} was not changed: {error.strerror or error}.")


def _agree(choices: ConnectChoices, count: int) -> None:
    if choices.yes:
        return
    if choices.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("Nothing was written, because there is no terminal to ask at. Repeat it with --yes.")
    typer.confirm("Make this change?" if count == 1 else f"Make these {count} changes?", abort=True)


def _wanted(client: str, every: bool, choices: ConnectChoices) -> list[ClientProgram]:
    from mcp_optimizer.config.clients.connecting import is_installed
    from mcp_optimizer.config.known_clients.table import CLIENTS

    if not _NAME.fullmatch(choices.name):
        raise ConfigurationError(f"--name {choices.name!r} must be 1 to 64 letters, digits, hyphens and underscores.")
    if every:
        if client:
            raise ConfigurationError("Name a client or say --all, not both.")
        machine = this_machine()
        found = [
            one
            for one in CLIENTS.values()
            if is_installed(one, machine) and (one.in_projects or not choices.in_project)
        ]
        if not found:
            raise ConfigurationError(f"No client was found here. Clients: {', '.join(CLIENTS)}.")
        return found
    if client not in CLIENTS:
        said = f"{client!r} is not a known client." if client else "Name a client, or say --all."
        raise ConfigurationError(f"{said} Clients: {', '.join(CLIENTS)}.")
    return [CLIENTS[client]]


def _gateway(settings: Settings, url: str, key_variable: str) -> OurGateway:
    """How clients reach us: a command with absolute paths, or the URL."""
    from mcp_optimizer.config.clients.connecting import is_temporary
    from mcp_optimizer.config.known_clients.entry_spelling import OurGateway

    if url:
        if not url.startswith(("http://", "https://")) or re.search(r"\s|@", url):
            raise ConfigurationError("--http needs a URL without a password, such as http://127.0.0.1:8765/mcp.")
        if key_variable and not _VARIABLE.fullmatch(key_variable):
            raise ConfigurationError("--key-variable is the name of a variable, not the key itself.")
        return OurGateway(url=url, key_variable=key_variable)
    if key_variable:
        raise ConfigurationError("--key-variable is for a gateway over HTTP; add --http URL.")
    words = this_program()
    if is_temporary(words[0]):
        warn(
            f"{words[0]} is a temporary copy and may go away. Install it for good first: "
            "uv tool install mcp-optimizer-gateway"
        )
    if settings.demo:
        return OurGateway(words[0], (*words[1:], "serve", "--demo"))
    file = settings.server_file.absolute()
    if settings.config is None and file != own_server_file():
        warn(f"{file} is the server file of this folder: anyone who can change the folder decides which programs start")
    if not file.exists():
        warn(f"There is no server file at {file} yet: mcp-optimizer import, or mcp-optimizer init {file}")
    only = ("--servers", settings.servers) if settings.servers else ()
    started = (*words[1:], "serve", "--config", str(file), *only)
    return OurGateway(words[0], started, variables=variables_of(file))


def _usable(words: list[str], choices: ConnectChoices) -> list[str]:
    """A client's own command, if it may be used and is installed."""
    return words if words and not (choices.by_file or choices.in_project) and shutil.which(words[0]) else []
