"""Plans how our entry is added to a client's file and removed again, and how servers that are now behind it are
switched off there: texts in, texts out.

Called by the command line, which shows the plan, asks, keeps a copy and writes. Reads files, writes none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.files import FoundFile, ListedEntry, Machine, file_at, listing
from mcp_optimizer.config.known_clients.entry_spelling import NotForThisClient, OurGateway
from mcp_optimizer.config.known_clients.program import ClientProgram, FilePlace, KeyPath, SwitchOff
from mcp_optimizer.config.serverfile.recognised_servers import is_gateway
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.config.textfiles.editing import CannotEdit, with_item, with_value, without_item, without_value
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed

# Recognises our own entry in a client's file, and a temporary copy of this program.

DEFAULT_NAME = "mcp-optimizer"


def is_ours(client: ClientProgram, name: str, entry: Any) -> bool:
    """Whether a client's entry is a gateway: by its command, or by its name if it has only a URL."""
    if not isinstance(entry, dict):
        return False
    try:
        flat = client.reading.shape(entry)
    except UnusableEntry:
        return False
    given = {client.reading.renamed.get(key, key): value for key, value in flat.items()}
    command, args, url = given.get("command"), given.get("args"), given.get("url")
    if isinstance(command, str) and command:
        words = tuple(item for item in args if isinstance(item, str)) if isinstance(args, list) else ()
        return is_gateway(ServerSpec(name=name, transport=Transport.STDIO, command=command, args=words))
    return isinstance(url, str) and bool(url) and is_gateway(ServerSpec(name=name, transport=Transport.HTTP, url=url))


def is_temporary(program: str) -> bool:
    """Whether a program is in the temporary cache of uvx or `pipx run`."""
    parts = program.replace(os.sep, "/").lower()
    return any(
        sign in parts for sign in ("/archive-v0/", "/uv/cache/", "/.cache/uv/", "/pipx/.cache/", "/.cache/pipx/")
    )


# Switches servers off in the file of a client that no longer needs them, so that their tools are not listed twice.


def switched_off(file: FoundFile, entries: Iterable[ListedEntry]) -> str:
    """The text of a client's file with these servers switched off, or without them if the client cannot do that.

    Raises CannotEdit where other parts of the file would change.
    """
    text, kind, how = file.text, file.place.kind, file.client.switch_off
    # The last item of a list first: removing an item shifts those after it.
    for entry in sorted(entries, key=lambda one: -1 if one.index is None else -one.index):
        if entry.index is not None:
            text = without_listed(text, kind, entry.at, entry.index)
        elif how is SwitchOff.DISABLED:
            text = with_value(text, kind, (*entry.at, "disabled"), True)
        elif how is SwitchOff.ENABLED:
            text = with_value(text, kind, (*entry.at, "enabled"), False)
        elif how is SwitchOff.EXCLUDED:
            text = _excluded(text, kind, entry.name)
        else:
            text = without_value(text, kind, entry.at)
    return text


def without_listed(text: str, kind: FileKind, at: KeyPath, index: int) -> str:
    """The text without an item of a list. An emptied list stays a list: Continue refuses a null."""
    text = without_item(text, kind, at, index)
    holder = parsed(text, kind) or {}
    for key in at[:-1]:
        holder = holder.get(key) or {}
    return with_value(text, kind, at, []) if at[-1] in holder and holder[at[-1]] is None else text


def _excluded(text: str, kind: FileKind, name: str) -> str:
    """Gemini CLI's file with a server added to its list of excluded ones."""
    mcp = parsed(text, kind).get("mcp")
    there = mcp.get("excluded") if isinstance(mcp, dict) else None
    names = there if isinstance(there, list) else []
    return text if name in names else with_value(text, kind, ("mcp", "excluded"), [*names, name])


class CannotConnect(ValueError):
    """A client's file is left unchanged. The message says why, and what to do."""


@dataclass(frozen=True)
class FileChange:
    """A planned change of a client's file. Equal texts mean that there is nothing to do."""

    client: ClientProgram
    place: FilePlace
    name: str
    content: bytes | None = field(repr=False)
    """The current content; None if there is no file."""
    text: str = field(repr=False)
    """The text after the change."""
    entry: Mapping[str, Any] = field(repr=False)
    others: tuple[str, ...] = ()
    """Servers in the file that are not ours and are switched on."""
    is_update: bool = False
    """Whether our entry was there before, with other values."""
    removes_file: bool = False
    """Whether to remove the file, because we created it."""
    connected_as: str = ""
    """The name under which the client has this entry already."""
    restored: tuple[str, ...] = ()
    """Moved servers that are put back."""
    is_exact: bool = True
    """Whether they are put back byte for byte. Not in a file that another program changed in between."""

    @property
    def before(self) -> str:
        return "" if self.content is None else self.content.decode("utf-8")


def connecting(
    client: ClientProgram, machine: Machine, gateway: OurGateway, name: str, *, in_project: bool
) -> FileChange:
    """The change that connects a client."""
    file = _file(client, machine, in_project)
    place = file.place
    try:
        entry = client.writing.entry(gateway, name)
    except NotForThisClient as error:
        raise CannotConnect(f"{client.title}: {error}.") from None
    entries = _entries(file, machine)
    content = file.content if os.path.lexists(place.path) else None
    others = tuple(one.name for one in entries if not is_ours(client, one.name, one.value) and not _is_off(one))
    change = FileChange(client, place, name, content, "" if content is None else file.text, entry, others)
    there = next((one for one in entries if one.name == name), None)
    same = next((one for one in entries if is_ours(client, one.name, one.value) and _is_same(one.value, entry)), None)
    if same is not None:
        return replace(change, connected_as=same.name)
    if there is not None and not is_ours(client, name, there.value):
        raise CannotConnect(
            f"{client.title} has another server named {name!r} in {place.path}. Choose another name with --name."
        )
    try:
        return replace(change, text=_with_entry(file, there, name, entry), is_update=there is not None)
    except (CannotEdit, UnreadableText) as error:
        raise CannotConnect(f"{place.path} was not changed. {error}.") from None


def disconnecting(client: ClientProgram, machine: Machine, name: str, *, in_project: bool) -> FileChange | None:
    """The change that removes our entry, or None if there is none."""
    file = _file(client, machine, in_project, must_be_installed=False)
    if not os.path.lexists(file.place.path):
        return None
    there = next((one for one in _entries(file, machine) if one.name == name), None)
    if there is None:
        return None
    if not is_ours(client, name, there.value):
        raise CannotConnect(f"The server {name!r} in {file.place.path} is not this program; it was not removed.")
    try:
        text = _without_entry(file, there)
    except (CannotEdit, UnreadableText) as error:
        raise CannotConnect(f"{file.place.path} was not changed. {error}.") from None
    return FileChange(client, file.place, name, file.content, text, there.value)


def disconnected_text(file: FoundFile, machine: Machine, name: str) -> str | None:
    """A file's text without our entry, or None if it has none. Raises CannotEdit."""
    there = next(
        (one for one in _entries(file, machine) if one.name == name and is_ours(file.client, name, one.value)), None
    )
    return None if there is None else _without_entry(file, there)


def is_installed(client: ClientProgram, machine: Machine) -> bool:
    """Whether a folder or a file of a client exists."""
    where = machine.home, machine.environment, machine.platform
    return any(one.is_dir() for one in client.folders(*where)) or any(
        os.path.lexists(place.path) for place in client.files(*where)
    )


def has_entry(change: FileChange) -> bool:
    """Whether the file has our entry, checked after a client's own command ran."""
    file = file_at(change.client, change.place)
    return not file.problem and any(
        one.name == change.name and is_ours(change.client, one.name, one.value)
        for one in listing(file, Path(os.sep), all_projects=False).entries
    )


def is_empty(text: str, place: FilePlace) -> bool:
    """Whether a file has no content left."""
    try:
        document = parsed(text, place.kind) if text.strip() else None
    except UnreadableText:
        return False
    return not document or document == {place.servers[0][0]: {}}


def _file(client: ClientProgram, machine: Machine, in_project: bool, must_be_installed: bool = True) -> FoundFile:
    places = _places(client, machine, in_project)
    if must_be_installed and not in_project and not is_installed(client, machine):
        folder = client.folders(machine.home, machine.environment, machine.platform)[0]
        raise CannotConnect(f"{client.title} is not installed here: there is no {folder}.")
    there = [one for one in places if os.path.lexists(one.path)] or [one for one in places if one.path.parent.is_dir()]
    place = there[0] if there else places[0]
    if place.leads_out:
        raise CannotConnect(f"{place.path} was not changed. It is a link that leads out of {place.project}.")
    if not os.path.lexists(place.path):
        if client.needs_file and must_be_installed:
            raise CannotConnect(f"{client.title} has no {place.path} yet; open its settings once, then connect it.")
        return FoundFile(client, place, b"", {})
    if not _is_blank(place.path):
        file = file_at(client, place)
        if file.problem:
            raise CannotConnect(f"{place.path} was not changed. {file.problem}.")
        return file
    return FoundFile(client, place, place.path.read_bytes(), {})


def _is_blank(path: Path) -> bool:
    """Whether a small file is blank, which no parser accepts and every client does."""
    try:
        return path.is_file() and path.stat().st_size < 64 and not path.read_bytes().strip()
    except OSError:
        return False


def _places(client: ClientProgram, machine: Machine, in_project: bool) -> list[FilePlace]:
    """Files that may get our entry: those in the same format as the client's main one."""
    if in_project:
        if not client.in_projects:
            raise CannotConnect(f"{client.title} has no file for projects; leave out --project.")
        return list(client.project_files(machine.folder))
    found = client.files(machine.home, machine.environment, machine.platform)
    return [one for one in found if one.kind is found[0].kind and one.servers == found[0].servers]


def _entries(file: FoundFile, machine: Machine) -> tuple[ListedEntry, ...]:
    """The entries for all folders, or for the project if the file is a project's; without those that a user's file
    has for single folders.
    """
    found = listing(file, machine.folder, all_projects=False).entries
    return tuple(one for one in found if one.project == file.place.project)


def _is_off(entry: ListedEntry) -> bool:
    value = entry.value
    return entry.is_off or (
        isinstance(value, Mapping) and (value.get("disabled") is True or value.get("enabled") is False)
    )


def _is_same(value: Any, entry: Mapping[str, Any]) -> bool:
    """Whether an entry has the same content as ours; the client may have added keys, and its name may differ."""
    return isinstance(value, Mapping) and all(
        value.get(key) == item or (not item and key not in value) for key, item in entry.items() if key != "name"
    )


def _path(file: FoundFile, name: str) -> KeyPath:
    used = file.client.servers_in(file.document, file.place)
    return (*(used or file.place.servers)[0], name)


def _with_entry(file: FoundFile, there: ListedEntry | None, name: str, entry: Mapping[str, Any]) -> str:
    kind = file.place.kind
    if not file.client.writing.in_list:
        return with_value(file.text, kind, _path(file, name), dict(entry))
    text = file.text if there is None or there.index is None else without_item(file.text, kind, there.at, there.index)
    return with_item(text, kind, file.place.servers[0], dict(entry))


def _without_entry(file: FoundFile, there: ListedEntry) -> str:
    if there.index is not None:
        return without_listed(file.text, file.place.kind, there.at, there.index)
    return without_value(file.text, file.place.kind, there.at)
