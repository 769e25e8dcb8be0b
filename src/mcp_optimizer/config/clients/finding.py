"""Finds the files of known clients on a machine, and reads them; any other file is recognised by its content.

Called by commands. Reads only plain files of a bounded size, never a device or a pipe; knows nothing of entries.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FilePlace, KeyPath, KnownFile
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, duplicate_keys, parsed

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
