"""Finds the files of known clients on a machine, and reads them; any other file is recognised by what it says.

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
"""Bytes of a file. Claude Code keeps its history in the same file as its servers."""

ANY_FILE = ClientProgram(
    "file", "server file", (KnownFile(Base.HOME, "mcp.json", (("mcpServers",), ("servers",), ("mcp", "servers"))),)
)
"""A file that no known client keeps, with servers in the usual form."""


@dataclass(frozen=True)
class Machine:
    """Where clients are looked for."""

    home: Path
    environment: Mapping[str, str] = field(repr=False)
    platform: str
    """Spelled as in `sys.platform`."""
    folder: Path
    """The current folder, which may be a project."""


@dataclass(frozen=True)
class FoundFile:
    """A file of a client, as it was read."""

    client: ClientProgram
    place: FilePlace
    content: bytes = field(default=b"", repr=False)
    document: Any = field(default=None, repr=False)
    problem: str = ""
    """Why it cannot be used, if so."""

    @property
    def text(self) -> str:
        """The content as text, every character kept."""
        return self.content.decode("utf-8")


def found_files(machine: Machine, clients: Iterable[ClientProgram] = CLIENTS.values()) -> list[FoundFile]:
    """The files of these clients that exist: those of the user, then those of the current folder."""
    found: dict[Path, FoundFile] = {}
    for client in clients:
        for place in places(client, machine):
            # One that cannot be followed, such as a link to itself, is a file that cannot be read.
            if os.path.lexists(place.path) and place.path not in found:
                found[place.path] = file_at(client, place)
    return list(found.values())


def places(client: ClientProgram, machine: Machine) -> list[FilePlace]:
    """Where a client's files may be."""
    of_user = list(client.files(machine.home, machine.environment, machine.platform))
    known = {place.path for place in of_user}
    # In the home itself, a project's file is the user's.
    return of_user + [place for place in client.project_files(machine.folder) if place.path not in known]


def file_at(client: ClientProgram, place: FilePlace) -> FoundFile:
    """A client's file, or why it cannot be read."""
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
    """Names that are there twice, on the way to servers or in them. What else a client repeats does not matter."""
    ways = ("projects", *(path[0] for path in place.servers))
    return [found for found in duplicate_keys(text) if found.startswith(ways)]


def content_of(path: Path, largest: int) -> bytes:
    """All bytes of a plain file. Raises UnreadableText if there is none, or too much."""
    try:
        # Without waiting: a pipe may have nobody at its other end.
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
    """A file that a user names: a known client's if it is in its place or written in its way."""
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
    """Whose way of writing a document is, and where its servers may be."""
    for client in CLIENTS.values():
        if client.signs is not None and client.signs.wrote(document, kind):
            known = next((file for file in client.known_files if file.kind is kind), client.known_files[0])
            return client, known.servers
    return ANY_FILE, ANY_FILE.known_files[0].servers
