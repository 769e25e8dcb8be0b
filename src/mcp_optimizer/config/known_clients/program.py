"""A client as a value: its names, its files on each system, and all that is known of how it writes and behaves.

Every other room reads a client through this. Looks at paths, and never at what files say. All values of this room are
named tuples: a dataclass takes six times as long to define, and a client on stdio waits for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from mcp_optimizer.config.known_clients.entry_reading import EntryReading
from mcp_optimizer.config.known_clients.entry_writing import EntryWriting, OwnCommands
from mcp_optimizer.config.known_clients.permitting import PermissionReading
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.domain.client_habits import UNKNOWN, ClientHabits

KeyPath = tuple[str, ...]


class Base(StrEnum):
    """The folder that a file's path begins at."""

    HOME = "home"
    SUPPORT = "support"
    """Where programs with a window keep their settings, which depends on the system."""
    CONFIG = "config"
    """`$XDG_CONFIG_HOME` or `~/.config`, on every system."""


class SwitchOff(StrEnum):
    """How a client's file says that a server is not used."""

    DISABLED = "disabled"
    """`"disabled": true` in the entry."""
    ENABLED = "enabled"
    """`"enabled": false` in the entry."""
    EXCLUDED = "excluded"
    """The name in a list elsewhere in the file."""
    REMOVED = "removed"
    """Not at all: the entry has to go."""


class FilePlace(NamedTuple):
    """A file of a client, which may or may not exist."""

    path: Path
    kind: FileKind
    servers: tuple[KeyPath, ...]
    """Where in the file servers may be; one that is added goes to the first."""
    project: Path | None = None
    """The folder whose servers these are; None for those of the user."""

    @property
    def leads_out(self) -> bool:
        """Whether a project's file is really elsewhere: a cloned repository could send our edits to any file."""
        if self.project is None:
            return False
        return not Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(self.project))


class KnownFile(NamedTuple):
    """A file of the user, before the machine is known."""

    base: Base
    path: str
    servers: tuple[KeyPath, ...] = (("mcpServers",),)
    kind: FileKind = FileKind.JSON
    folder_variable: str = ""
    """An environment variable that names the folder of this file."""
    file_variable: str = ""
    """An environment variable that names this file."""
    on_windows: str = ""
    """The path below %APPDATA%, where it is another on Windows."""

    def located(self, home: Path, environment: Mapping[str, str], platform: str) -> Path:
        if named := environment.get(self.file_variable, ""):
            return _absolute(named, home)
        if named := environment.get(self.folder_variable, ""):
            return _absolute(named, home) / Path(self.path).name
        if self.on_windows and platform == "win32":
            return _support_folder(home, environment, platform) / self.on_windows
        return _folder(self.base, home, environment, platform) / self.path


class ProjectEntry(NamedTuple):
    """An entry for one folder, in the file of a user."""

    folder: str
    name: str
    value: Any
    at: KeyPath
    """The keys that lead to it."""
    is_off: bool = False
    """Whether something outside of the entry switches it off."""

    def __repr__(self) -> str:
        # Without the value, which may hold secrets.
        return f"ProjectEntry({self.folder!r}, {self.name!r})"


class FileSigns(NamedTuple):
    """How a file of the client is recognised in a place that is not the client's."""

    wrote: Callable[[Mapping[str, Any], FileKind], bool]
    """Whether the client wrote a document of this kind."""
    line: re.Pattern[str] | None = None
    """What a text of the client contains, if it is not JSON."""
    is_foreign: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a JSON document has servers that are not written as in server files."""


class ClientProgram(NamedTuple):
    """A client: its names, its files, its spelling, and its habits."""

    name: str
    title: str
    known_files: tuple[KnownFile, ...] = ()
    """None for a program that keeps no servers in a file."""
    in_projects: tuple[str, ...] = ()
    """Files below a project's folder."""
    is_of_project: bool = False
    """Whether the folder of the first of them names the project for the variables of any file in it."""
    switch_off: SwitchOff = SwitchOff.REMOVED
    sign: str = ""
    """A folder in the user's home that shows that it is installed, where that of its file does not."""
    needs_file: bool = False
    """Whether a file with our entry alone is none that it reads."""
    chosen: Callable[[Any], tuple[KeyPath, ...]] | None = None
    """Which of the places for servers a document uses, where versions of the client differ."""
    project_entries: Callable[[Any], Iterator[ProjectEntry]] | None = None
    """The entries for single folders in the document of a user."""
    signs: FileSigns | None = None
    reading: EntryReading = EntryReading()
    writing: EntryWriting = EntryWriting()
    commands: OwnCommands = OwnCommands()
    permissions: PermissionReading = PermissionReading()
    says: tuple[str, ...] = ()
    """How the names begin, in lower case, that it sends when it connects; clients append versions and products."""
    habits: ClientHabits = UNKNOWN

    def __hash__(self) -> int:
        # There is one value for each client; its parts have no hashes.
        return id(self)

    @property
    def kind(self) -> FileKind:
        """What its main file is."""
        return self.known_files[0].kind

    def files(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[FilePlace, ...]:
        """The files of the user, the main one first. `platform` is spelled as in `sys.platform`."""
        return tuple(
            FilePlace(one.located(home, environment, platform), one.kind, one.servers) for one in self.known_files
        )

    def project_files(self, project: Path) -> tuple[FilePlace, ...]:
        """The files of a project, the main one first."""
        main = self.known_files[0]
        return tuple(FilePlace(project / path, main.kind, main.servers, project) for path in self.in_projects)

    def folders(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[Path, ...]:
        """The folders of which one exists if the client is installed, that of its main file first."""
        found = (one.located(home, environment, platform).parent for one in self.known_files)
        return tuple(home / self.sign if self.sign and one == home else one for one in found)

    def servers_in(self, document: Any, place: FilePlace) -> tuple[KeyPath, ...]:
        """Where in a document of the client servers may be."""
        return place.servers if self.chosen is None else self.chosen(document)


def _folder(base: Base, home: Path, environment: Mapping[str, str], platform: str) -> Path:
    if base is Base.HOME:
        return home
    if base is Base.SUPPORT:
        return _support_folder(home, environment, platform)
    return _absolute(environment.get("XDG_CONFIG_HOME", "") or ".config", home)


def _support_folder(home: Path, environment: Mapping[str, str], platform: str) -> Path:
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return _absolute(environment.get("APPDATA", "") or "AppData/Roaming", home)
    return _absolute(environment.get("XDG_CONFIG_HOME", "") or ".config", home)


def _absolute(named: str, home: Path) -> Path:
    """A path from the environment. A relative one, or one with `~`, is below the home that was given."""
    return home / named.removeprefix("~/")
