"""Finds and reads the files of known clients on a machine, and the entries in them; any other file is recognised by its
content.

Called by commands. Reads only plain files of a bounded size, never a device or a pipe. Interprets no entry: `importing`
does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import value_at
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FilePlace, KeyPath, KnownFile, SwitchOff
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, duplicate_keys, parsed

# Finds the files of known clients on a machine, and reads them; any other file is recognised by its content. Reads
# only plain files of a bounded size, never a device or a pipe; knows nothing of entries.

LARGEST = {FileKind.JSON: 32_000_000, FileKind.TOML: 5_000_000, FileKind.YAML: 5_000_000}
"""Maximum bytes of a file. Claude Code keeps its history in the same file as its servers."""

ANY_FILE = ClientProgram(
    "file", "server file", (KnownFile(Base.HOME, "mcp.json", (("mcpServers",), ("servers",), ("mcp", "servers"))),)
)
"""Any file of no known client that has servers in the usual form."""


@dataclass(frozen=True)
class Machine:
    """The places where clients are looked for."""

    home: Path
    environment: Mapping[str, str] = field(repr=False)
    platform: str
    """Spelled as in `sys.platform`."""
    folder: Path
    """The current folder, which may be a project."""


@dataclass(frozen=True)
class FoundFile:
    """A client's file and its content."""

    client: ClientProgram
    place: FilePlace
    content: bytes = field(default=b"", repr=False)
    document: Any = field(default=None, repr=False)
    problem: str = ""
    """Why it cannot be used; empty if it can."""

    @property
    def text(self) -> str:
        """The content as text, with every character kept."""
        return self.content.decode("utf-8")


def found_files(machine: Machine, clients: Iterable[ClientProgram] = CLIENTS.values()) -> list[FoundFile]:
    """The existing files of these clients: the user's, then the current folder's."""
    found: dict[Path, FoundFile] = {}
    for client in clients:
        for place in places(client, machine):
            # A link that cannot be followed, such as one to itself, counts as an unreadable file.
            if os.path.lexists(place.path) and place.path not in found:
                found[place.path] = file_at(client, place)
    return list(found.values())


def places(client: ClientProgram, machine: Machine) -> list[FilePlace]:
    """The paths where a client's files may be."""
    of_user = list(client.files(machine.home, machine.environment, machine.platform))
    known = {place.path for place in of_user}
    # In the home folder, a project's file is the user's own.
    return of_user + [place for place in client.project_files(machine.folder) if place.path not in known]


def file_at(client: ClientProgram, place: FilePlace) -> FoundFile:
    """A client's file, or the reason why it cannot be read."""
    try:
        content = content_of(place.path, LARGEST[place.kind])
        text = content.decode("utf-8")
        document = parsed(text, place.kind)
        if place.kind is FileKind.JSON and (repeated := _repeated(text, place)):
            raise UnreadableText(f"It has a name twice: {', '.join(repeated[:3])}; keep one")
    except UnicodeDecodeError:
        return FoundFile(client, place, problem="It is not text in UTF-8")
    except UnreadableText as error:
        return FoundFile(client, place, problem=str(error))
    if document is not None and not isinstance(document, dict):
        return FoundFile(client, place, problem=f"It is not a {place.kind} object with servers")
    return FoundFile(client, place, content, document or {})


def _repeated(text: str, place: FilePlace) -> list[str]:
    """Names that occur twice in or on the way to servers. Duplicates elsewhere in a client's file do not matter."""
    ways = ("projects", *(path[0] for path in place.servers))
    return [found for found in duplicate_keys(text) if found.startswith(ways)]


def content_of(path: Path, largest: int) -> bytes:
    """All bytes of a plain file. Raises UnreadableText if there is none, or if it is too large."""
    try:
        # Non-blocking: a pipe may have no writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise UnreadableText("It is not a plain file")
            content = opened.read(largest + 1)
    except OSError as error:
        raise UnreadableText(f"It cannot be read: {error.strerror}") from None
    if len(content) > largest:
        raise UnreadableText(f"It is larger than {largest // 1_000_000} MB")
    return content


def file_named(path: Path, machine: Machine) -> FoundFile:
    """A file that a user names: a known client's if its path or its format says so."""
    path = Path(os.path.abspath(path))
    for client in CLIENTS.values():
        for place in places(client, machine):
            if place.path == path:
                return file_at(client, place)
    for client in CLIENTS.values():
        for inside in client.in_projects:
            parts = Path(inside).parts
            if len(parts) > 1 and path.parts[-len(parts) :] == parts:
                place = next(one for one in client.project_files(path.parents[len(parts) - 1]) if one.path == path)
                return file_at(client, place)
    kind = {".toml": FileKind.TOML, ".yaml": FileKind.YAML, ".yml": FileKind.YAML}.get(path.suffix, FileKind.JSON)
    found = file_at(ANY_FILE, FilePlace(path, kind, ANY_FILE.known_files[0].servers))
    if found.problem:
        return found
    client, servers = _written_by(found.document, kind)
    project = path.parent if path.name == ".mcp.json" else None
    return FoundFile(client, FilePlace(path, kind, servers, project), found.content, found.document)


def _written_by(document: Mapping[str, Any], kind: FileKind) -> tuple[ClientProgram, tuple[KeyPath, ...]]:
    """The client whose format a document has, and where its servers may be."""
    for client in CLIENTS.values():
        if client.signs is not None and client.signs.wrote(document, kind):
            known = next((file for file in client.known_files if file.kind is kind), client.known_files[0])
            return client, known.servers
    return ANY_FILE, ANY_FILE.known_files[0].servers


# The entries in a client's file: where they are, which are switched off elsewhere in it, and whose project they are.

MOST_SERVERS = 500
"""Maximum servers read from one part of a file."""


@dataclass(frozen=True)
class ListedEntry:
    """An entry as written in a file."""

    name: str
    value: Any = field(repr=False)
    at: KeyPath
    """The keys that lead to it; for one in a list, those that lead to the list."""
    index: int | None = None
    """Its position in a list."""
    project: Path | None = None
    """The folder that it applies to, if only one."""
    is_off: bool = False
    """Whether something outside the entry switches it off."""


@dataclass(frozen=True)
class FileListing:
    """The entries of a file, and notes about it."""

    entries: tuple[ListedEntry, ...] = ()
    notes: tuple[str, ...] = ()


def listing(found: FoundFile, folder: Path, *, all_projects: bool) -> FileListing:
    """The entries of a file; of those for projects, only those for `folder`, unless all are wanted."""
    notes: list[str] = []
    entries: list[ListedEntry] = []
    for at in found.client.servers_in(found.document, found.place):
        servers = value_at(found.document, at)
        if servers is None:
            continue
        if not isinstance(servers, dict | list):
            notes.append(f'"{".".join(at)}" is not an object of servers by name')
            continue
        if len(servers) > MOST_SERVERS:
            notes.append(f"it has {len(servers):,} servers; only the first {MOST_SERVERS:,} are read")
        entries += _entries(servers, at, found)
    of_projects, others = _of_projects(found, folder, all_projects)
    entries += of_projects
    if others:
        notes.append(f"{others} more in other projects; take them over with --all-projects")
    return FileListing(tuple(entries), tuple(notes))


def _entries(servers: Mapping[str, Any] | list[Any], at: KeyPath, found: FoundFile) -> list[ListedEntry]:
    project = found.place.project
    if isinstance(servers, list):
        return [
            ListedEntry(_name_in_list(entry, number), entry, at, number, project)
            for number, entry in enumerate(islice(servers, MOST_SERVERS))
        ]
    return [
        ListedEntry(str(name), entry, (*at, str(name)), project=project, is_off=_is_excluded(str(name), found))
        for name, entry in islice(servers.items(), MOST_SERVERS)
    ]


def _name_in_list(entry: Any, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"server-{number + 1}"


def _is_excluded(name: str, found: FoundFile) -> bool:
    """Whether lists elsewhere in the file exclude a server."""
    if found.client.switch_off is not SwitchOff.EXCLUDED:
        return False
    excluded = _names(found.document, ("mcp", "excluded")) | _names(found.document, ("excludeMCPServers",))
    allowed = _names(found.document, ("mcp", "allowed")) | _names(found.document, ("allowMCPServers",))
    return name in excluded or (bool(allowed) and name not in allowed)


def _names(document: Any, at: KeyPath) -> set[str]:
    found = value_at(document, at)
    return {item for item in found if isinstance(item, str)} if isinstance(found, list) else set()


def _of_projects(found: FoundFile, folder: Path, all_projects: bool) -> tuple[list[ListedEntry], int]:
    """The project entries of this folder or of all, and how many remain."""
    taken: list[ListedEntry] = []
    others = 0
    known = found.client.project_entries
    for one in known(found.document) if known is not None else ():
        is_wanted = all_projects or os.path.normpath(one.folder) == os.path.normpath(folder)
        if is_wanted and len(taken) < MOST_SERVERS:
            taken.append(ListedEntry(one.name, one.value, one.at, project=Path(one.folder), is_off=one.is_off))
        else:
            others += 1
    return taken, others
