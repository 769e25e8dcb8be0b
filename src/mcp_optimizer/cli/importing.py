"""`import`: servers of other programs' files are taken over into the server file. Starts no server.

Shows what is taken and what not, and why. Prints names, never values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.auditing import record_act
from mcp_optimizer.cli.client_files import backups_of, this_machine
from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.clients.backups import Backups
    from mcp_optimizer.clients.finding import FoundFile, Machine
    from mcp_optimizer.clients.importing import ImportPlan, PlannedEntry

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
    """What a user chose."""

    dry_run: bool
    move: bool
    store_secrets: bool
    as_json: bool


def register(app: typer.Typer) -> None:
    app.command("import")(import_servers)


@with_settings()
def import_servers(
    source: Annotated[
        str, typer.Argument(metavar="CLIENT|FILE", help="A client, such as cursor, or a file. Default: all clients.")
    ] = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be taken over.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="Switch the servers off where they come from, so that none is there twice.")
    ] = False,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Servers of all projects of Claude Code, not only of this folder.")
    ] = False,
    store_secrets: Annotated[
        bool, typer.Option("--store-secrets", help="Store secrets encrypted, and refer to them by name.")
    ] = False,
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Take over the servers of other MCP clients into the server file. `--servers a,b` takes only these."""
    choices = ImportChoices(dry_run, move, store_secrets, as_json)
    run(_import(settings, source, choices, all_projects=all_projects))


async def _import(settings: Settings, source: str, choices: ImportChoices, *, all_projects: bool) -> None:
    from mcp_optimizer.app.options import items
    from mcp_optimizer.cli.import_report import report
    from mcp_optimizer.clients.importing import WantedServers, planned
    from mcp_optimizer.clients.known import CLIENTS

    if settings.demo:
        raise ConfigurationError("The demo has no server file that servers could be added to; leave out --demo.")
    machine = this_machine()
    target = _server_file(settings.server_file)
    files = [file for file in _files(source, machine) if not _is_same_file(file.place.path, target.path)]
    wanted = WantedServers(items(settings.servers), all_projects, from_folder=bool(source) and source not in CLIENTS)
    plan = planned(files, target.entries, machine, wanted)
    _check_found(plan, source, wanted.servers)
    if choices.dry_run:
        report(plan, target.path, choices)
        return
    stored = await _stored(settings, plan, choices)
    await _add(settings, target, stored or plan, is_stored=stored is not None)
    moved, problems = _move(plan, backups_of(settings)) if choices.move else ([], [])
    report(stored or plan, target.path, choices, is_stored=stored is not None, moved=moved, problems=problems)
    if problems:
        raise typer.Exit(1)


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _files(source: str, machine: Machine) -> list[FoundFile]:
    """The files to look at. One that is named must be there and readable."""
    from mcp_optimizer.clients.finding import file_named, found_files, places
    from mcp_optimizer.clients.known import CLIENTS

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
    """Our server file. One that is not understood is not added to."""
    from mcp_optimizer.clients.finding import LARGEST, content_of
    from mcp_optimizer.textfiles.kinds import FileKind
    from mcp_optimizer.textfiles.reading import UnreadableText, parsed
    from mcp_optimizer.upstream.config import servers_of

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
    """The plan with references to secrets that are stored now; None if they are not to be stored."""
    from dataclasses import replace

    from mcp_optimizer.app.options import place_of
    from mcp_optimizer.clients.importing import beside_stored
    from mcp_optimizer.identity.secrets import opened_secrets

    count = sum(len(entry.secrets) for entry in plan.taken)
    if not count or not (choices.store_secrets or _agrees(count, choices)):
        return None
    async with opened_secrets(place_of(settings, "Secrets"), os.environ) as secrets:
        # Whatever is stored under a name that is wanted here, readable or not, stays.
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
    """Write what is taken into our file."""
    from mcp_optimizer.clients.importing import with_entries
    from mcp_optimizer.db.private_files import make_folder
    from mcp_optimizer.folders.trusted import carry_over
    from mcp_optimizer.textfiles.editing import CannotEdit
    from mcp_optimizer.textfiles.writing import replace_file

    if not plan.taken:
        return
    try:
        text = with_entries(target.text, target.key, plan.taken, stored=is_stored)
        if target.content is None:
            make_folder(target.path.absolute().parent)
        # Also what is not known to be a secret may be one: a client's file is often private.
        has_values = any(one.secrets or one.entry.keys() & {"env", "headers"} for one in plan.taken)
        replace_file(target.path, text, expected=target.content, private=has_values)
        carry_over(target.path, target.content, text.encode())
    except CannotEdit as error:
        raise ConfigurationError(f"Servers cannot be added to {target.path}. {error}.") from None
    except OSError as error:
        raise ConfigurationError(f"Cannot write {target.path}: {error.strerror or error}.") from None
    for entry in plan.taken:
        await record_act(settings, "server/import", server=entry.name)


def _move(plan: ImportPlan, backups: Backups) -> tuple[list[PlannedEntry], list[str]]:
    """Switch off what our file has now, and keep a copy of each file from before.

    A file that cannot be changed does not stop the others.
    """
    from mcp_optimizer.clients.backups import Backup, digest
    from mcp_optimizer.clients.moving import switched_off
    from mcp_optimizer.textfiles.editing import CannotEdit
    from mcp_optimizer.textfiles.writing import replace_file

    moved: list[PlannedEntry] = []
    problems: list[str] = []
    for file in plan.files:
        entries = [entry for entry in plan.entries if entry.file is file and entry.is_there]
        if not entries:
            continue
        if file.place.leads_out:
            problems.append(f"{file.place.path} was not changed: it is a link that leads out of its folder")
            continue
        try:
            text = switched_off(file, [entry.listed for entry in entries])
            path, after = file.place.path, digest(text.encode())
            backups.keep(Backup(file.client.name, "", str(path), "", digest(file.content), after), file.content)
            replace_file(path, text, expected=file.content)
            moved += entries
        except (CannotEdit, OSError) as error:
            problems.append(f"{file.place.path} was not changed: {error}")
    return moved, problems
