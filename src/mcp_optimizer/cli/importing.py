"""`import`: copies servers from other programs' files into the server file. Starts no server.

Shows what is imported, what is not, and why. Prints names, never values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.client_environment import backups_of, this_machine
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import JsonFlag, complete_client, with_settings
from mcp_optimizer.config.settings import Settings, own_server_file
from mcp_optimizer.config.trusted_files import SETTINGS_FILE
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted

if TYPE_CHECKING:
    from mcp_optimizer.config.clients.applying import Backups
    from mcp_optimizer.config.clients.files import FoundFile, Machine
    from mcp_optimizer.config.clients.importing import ImportPlan, PlannedEntry
    from mcp_optimizer.config.clients.permissions import CarriedRules
    from mcp_optimizer.domain.caller import Rule

_EMPTY = '{\n  "mcpServers": {}\n}\n'


@dataclass(frozen=True)
class ServerFile:
    """The server file that servers are added to, as it was read."""

    path: Path
    content: bytes | None = field(repr=False)
    """None if there is none yet."""
    key: tuple[str, ...] = ("mcpServers",)
    entries: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        return _EMPTY if self.content is None else self.content.decode("utf-8")


@dataclass(frozen=True)
class ImportChoices:
    """The user's options."""

    dry_run: bool
    move: bool
    store_secrets: bool
    as_json: bool
    yes: bool = False


def register(app: typer.Typer) -> None:
    app.command("import")(import_servers)


@with_settings()
def import_servers(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT|FILE",
            help="A client, such as cursor, or a file. Default: all clients.",
            autocompletion=complete_client,
        ),
    ] = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which servers would be imported.")] = False,
    move: Annotated[
        bool,
        typer.Option(
            "--move",
            help="Switch the servers off where they come from, or remove them; `disconnect --restore` puts them back.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --move: do not ask.")] = False,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Servers of all projects of Claude Code, not only of this folder.")
    ] = False,
    store_secrets: Annotated[
        bool, typer.Option("--store-secrets", help="Store secrets encrypted, and refer to them by name.")
    ] = False,
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Import the servers of other MCP clients into the server file. `--servers a,b` imports only these."""
    choices = ImportChoices(dry_run, move, store_secrets, as_json, yes)
    run(_import(settings, source, choices, all_projects=all_projects))


async def _import(settings: Settings, source: str, choices: ImportChoices, *, all_projects: bool) -> None:
    from mcp_optimizer.app.setting_values import items
    from mcp_optimizer.cli.import_report import report
    from mcp_optimizer.config.clients.importing import WantedServers, planned
    from mcp_optimizer.config.clients.permissions import carried
    from mcp_optimizer.config.known_clients.table import CLIENTS

    if settings.demo:
        raise ConfigurationError("The demo has no server file that servers could be added to; leave out --demo.")
    machine = this_machine()
    target = _server_file(settings.server_file)
    files = [file for file in _files(source, machine) if not _is_same_file(file.place.path, target.path)]
    wanted = WantedServers(items(settings.servers), all_projects, from_folder=bool(source) and source not in CLIENTS)
    plan = planned(files, target.entries, machine, wanted)
    _check_found(plan, source, wanted.servers)
    rules = RulesToWrite.of(settings, carried(plan, target.entries, machine))
    moves, problems = _moves(plan) if choices.move else ([], [])
    if choices.dry_run:
        report(plan, target.path, choices, rules=rules, problems=problems)
        return
    if moves:
        _agree(moves, rules, choices)
    stored = await _stored(settings, plan, choices)
    # Before anything is moved: a server must not arrive here without its rules about tools.
    rules.write()
    await _add(settings, target, stored or plan, is_stored=stored is not None)
    moved, failed = _carry_out(moves, backups_of(settings))
    problems += failed
    report(
        stored or plan, target.path, choices, rules=rules, is_stored=stored is not None, moved=moved, problems=problems
    )
    if problems:
        raise typer.Exit(1)


def plan_of_all(settings: Settings) -> ImportPlan:
    """What importing from all clients would do now."""
    from mcp_optimizer.config.clients.importing import WantedServers, planned

    machine, target = this_machine(), _server_file(settings.server_file)
    files = [file for file in _files("", machine) if not _is_same_file(file.place.path, target.path)]
    return planned(files, target.entries, machine, WantedServers())


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _files(source: str, machine: Machine) -> list[FoundFile]:
    """The files to look at. A file that the user names must exist and be readable."""
    from mcp_optimizer.config.clients.files import file_named, found_files, places
    from mcp_optimizer.config.known_clients.table import CLIENTS

    if not source:
        return found_files(machine)
    if source in CLIENTS:
        client = CLIENTS[source]
        if found := found_files(machine, [client]):
            return found
        looked = ", ".join(str(place.path) for place in places(client, machine))
        raise ConfigurationError(f"{client.title} has no file with servers here. Looked for {looked}.")
    path = Path(source).expanduser()
    if not os.path.lexists(path):
        raise ConfigurationError(f"{source!r} is neither a file nor a client. Clients: {', '.join(CLIENTS)}.")
    file = file_named(path, machine)
    if file.problem:
        raise ConfigurationError(f"Cannot import {path}. {file.problem}.")
    return [file]


def _check_found(plan: ImportPlan, source: str, wanted: list[str] | Any) -> None:
    there = {entry.listed.name for entry in plan.entries}
    if missing := [name for name in wanted if name not in there]:
        place = source or "any client's file"
        raise ConfigurationError(f"There is no server {missing[0]!r} in {place}.")


def _server_file(path: Path) -> ServerFile:
    """Our server file. One that cannot be parsed is never edited."""
    from mcp_optimizer.config.clients.files import LARGEST, content_of
    from mcp_optimizer.config.serverfile.parser import servers_of
    from mcp_optimizer.config.textfiles.kinds import FileKind
    from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed

    if not os.path.lexists(path):
        return ServerFile(path, None)
    try:
        content = content_of(path, LARGEST[FileKind.JSON])
        document = parsed(content.decode("utf-8"), FileKind.JSON)
    except UnicodeDecodeError:
        raise ConfigurationError(f"The server file {path} is not text in UTF-8.") from None
    except UnreadableText as error:
        raise ConfigurationError(f"Servers cannot be added to {path}. {error}.") from None
    key, entries = servers_of(document, path)
    return ServerFile(path, content, key, entries)


async def _stored(settings: Settings, plan: ImportPlan, choices: ImportChoices) -> ImportPlan | None:
    """The plan, with references to the secrets just stored; None if the user refuses to store them."""
    from dataclasses import replace

    from mcp_optimizer.app.setting_values import place_of
    from mcp_optimizer.config.clients.importing import beside_stored
    from mcp_optimizer.identity.secrets import opened_secrets

    count = sum(len(entry.secrets) for entry in plan.taken)
    if not count or not (choices.store_secrets or _agrees(count, choices)):
        return None
    async with opened_secrets(place_of(settings, "Secrets"), os.environ) as secrets:
        # A secret already stored under a wanted name stays, whether readable or not.
        before = dict.fromkeys(await secrets.names(), "")
        before |= (await secrets.values(list(before))).values
        entries = []
        for entry in plan.entries:
            renamed = beside_stored(entry, before) if entry.secrets else entry
            entries.append(renamed)
            for name, value in renamed.secrets.items():
                if before.get(name) != value:
                    await secrets.set(name, value)
                    before[name] = value
                    await record_act(settings, "secret/set", name)
    return replace(plan, entries=tuple(entries))


def _agrees(count: int, choices: ImportChoices) -> bool:
    if choices.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Store {counted(count, 'secret')} encrypted, instead of copying them as they are?", True)


async def _add(settings: Settings, target: ServerFile, plan: ImportPlan, *, is_stored: bool) -> None:
    """Write the imported entries into our file."""
    from mcp_optimizer.config.clients.importing import with_entries
    from mcp_optimizer.config.textfiles.editing import CannotEdit
    from mcp_optimizer.config.textfiles.writing import replace_file
    from mcp_optimizer.config.trusted_files import carry_over
    from mcp_optimizer.runtime.local_files import make_folder

    if not plan.taken:
        return
    try:
        text = with_entries(target.text, target.key, plan.taken, stored=is_stored)
        if target.content is None:
            make_folder(target.path.absolute().parent)
        # Values not recognised as secrets may be secret, too: a client's file is often private.
        has_values = any(one.secrets or one.entry.keys() & {"env", "headers"} for one in plan.taken)
        replace_file(target.path, text, expected=target.content, private=has_values)
        carry_over(target.path, target.content, text.encode())
    except CannotEdit as error:
        raise ConfigurationError(f"Servers cannot be added to {target.path}. {error}.") from None
    except OSError as error:
        raise ConfigurationError(f"Cannot write {target.path}: {error.strerror or error}.") from None
    for entry in plan.taken:
        await record_act(settings, "server/import", server=entry.name)


@dataclass(frozen=True)
class PlannedMove:
    """A change of a client's file whose servers are now in ours."""

    file: FoundFile
    entries: tuple[PlannedEntry, ...]
    text: str = field(repr=False)
    """The new text."""


def _moves(plan: ImportPlan) -> tuple[list[PlannedMove], list[str]]:
    """The changes of files whose servers are now in ours. A file that cannot be changed does not stop the others."""
    from mcp_optimizer.config.clients.connecting import switched_off
    from mcp_optimizer.config.textfiles.editing import CannotEdit

    moves: list[PlannedMove] = []
    problems: list[str] = []
    for file in plan.files:
        entries = tuple(entry for entry in plan.entries if entry.file is file and entry.is_there)
        if not entries:
            continue
        if file.place.leads_out:
            problems.append(f"{file.place.path} was not changed: it is a link that leads out of its folder")
            continue
        try:
            moves.append(PlannedMove(file, entries, switched_off(file, [entry.listed for entry in entries])))
        except CannotEdit as error:
            problems.append(f"{file.place.path} was not changed: {error}")
    return moves, problems


def _agree(moves: list[PlannedMove], rules: RulesToWrite, choices: ImportChoices) -> None:
    """Show what would change in clients' files, and ask."""
    from mcp_optimizer.cli.import_report import show_moves

    if not choices.as_json:
        show_moves(moves, rules)
    if choices.yes:
        return
    if choices.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("Nothing was written, because there is no terminal to ask at. Repeat it with --yes.")
    typer.confirm("Make this change?" if len(moves) == 1 else f"Make these {len(moves)} changes?", abort=True)


def _carry_out(moves: list[PlannedMove], backups: Backups) -> tuple[list[PlannedEntry], list[str]]:
    """Write clients' files, and keep a copy of each from before, with the names of the moved servers."""
    from mcp_optimizer.config.clients.applying import Backup, digest
    from mcp_optimizer.config.textfiles.writing import replace_file

    moved: list[PlannedEntry] = []
    problems: list[str] = []
    for move in moves:
        file, path = move.file, move.file.place.path
        names = tuple(entry.listed.name for entry in move.entries)
        before, after = digest(file.content), digest(move.text.encode())
        try:
            backups.keep(Backup(file.client.name, "", str(path), "", before, after, moved=names), file.content)
            replace_file(path, move.text, expected=file.content)
            moved += move.entries
        except OSError as error:
            problems.append(f"{path} was not changed: {error}")
    return moved, problems


@dataclass(frozen=True)
class RulesToWrite:
    """Rules made of clients' permissions, and the settings file they are written to."""

    path: Path
    content: bytes | None = field(repr=False)
    """None if there is no such file yet."""
    rules: tuple[Rule, ...] = ()
    left: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings, found: CarriedRules) -> Self:
        """The rules that the settings do not have yet."""
        from dataclasses import replace

        there = {replace(one.rule, reason="") for one in settings.rules}
        path = settings.settings_file
        if path is None or path.name == SETTINGS_FILE:
            # A working folder's file applies only there; clients start us in any folder.
            path = own_server_file().with_name("settings.toml")
        content = path.read_bytes() if path.is_file() else None
        new = tuple(one for one in found.rules if replace(one, reason="") not in there)
        return cls(path, content, new, found.left)

    def write(self) -> None:
        from mcp_optimizer.config.clients.permissions import with_rules
        from mcp_optimizer.config.textfiles.editing import CannotEdit
        from mcp_optimizer.config.textfiles.reading import UnreadableText
        from mcp_optimizer.config.textfiles.writing import replace_file
        from mcp_optimizer.runtime.local_files import make_folder

        if not self.rules:
            return
        try:
            text = with_rules((self.content or b"").decode("utf-8"), self.rules)
            if self.content is None:
                make_folder(self.path.absolute().parent)
            replace_file(self.path, text, expected=self.content)
        except (CannotEdit, UnreadableText, UnicodeDecodeError, OSError) as error:
            raise ConfigurationError(
                f"Nothing was taken over: what clients refuse or ask about cannot be written to {self.path}. {error}"
            ) from None
