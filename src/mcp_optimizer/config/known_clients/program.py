"""A client as a value: its names, its files on each system, how it writes, and what it says about single tools.

All code outside this package reads a client's files through this. Looks at paths, never at the contents of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from mcp_optimizer.config.known_clients.entry_spelling import EntryReading, EntryWriting, OwnCommands
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.runtime.patterns import regex

# Which tools a client refuses, asks about or allows, as its files say it. Values and pure functions.
# `clients.permissions` turns them into rules. Server names are those in the client's file.

MOST = 1_000
"""Maximum permissions read from one file, and tools from one entry."""
_LONGEST = 300
_NOT_PLAIN = regex(r"[^A-Za-z0-9_-]")
_SIGNS = regex(r"[*?\[]")


class PermissionKind(StrEnum):
    """What is done with a tool, strictest first."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class ClientPermission(NamedTuple):
    """What a client does with some tools of a server."""

    kind: PermissionKind
    server: str
    tool: str
    """A glob pattern."""
    reason: str


class FilePermissions(NamedTuple):
    """What a file says about some servers."""

    found: tuple[ClientPermission, ...] = ()
    allowed: int = 0
    """How many kinds of tools the client calls without asking, which is not carried over."""


def _nothing(_name: str, _entry: Mapping[str, Any]) -> Iterator[ClientPermission]:
    return iter(())


class PermissionReading(NamedTuple):
    """Where a client keeps its permissions for tools."""

    of_entry: Callable[[str, Mapping[str, Any]], Iterator[ClientPermission]] = _nothing
    """From a server's entry, given its name."""
    of_file: Callable[[Mapping[str, Any], Sequence[str], str], FilePermissions] | None = None
    """From a file, given the servers' names and the file's."""
    other_files: Callable[[Path, Mapping[str, str], str, Path], list[Path]] | None = None
    """Files for `of_file`, given home, environment, platform and current folder; None: the files with servers."""
    chosen_key: str = ""
    """The key of an entry that lists the offered tools, if `*` there means all."""


def listed_texts(value: Mapping[str, Any], *keys: str) -> list[str]:
    """The strings in the lists at these keys."""
    found = (item for key in keys if isinstance(value.get(key), list) for item in value[key][:MOST])
    return [item for item in found if isinstance(item, str) and 0 < len(item) <= _LONGEST and item.isprintable()]


def plain_name(name: str) -> str:
    """A server's name in the form for clients that do not allow some characters."""
    return _NOT_PLAIN.sub("_", name)


def literal(name: str) -> str:
    """A pattern that only this name matches."""
    return _SIGNS.sub(lambda sign: f"[{sign.group()}]", name)


def has_signs(text: str) -> bool:
    return _SIGNS.search(text) is not None


def before_signs(text: str) -> str:
    """The part of a pattern before its first wildcard."""
    sign = _SIGNS.search(text)
    return text[: sign.start()] if sign else text


KeyPath = tuple[str, ...]


class Base(StrEnum):
    """The folder that a file's path starts from."""

    HOME = "home"
    SUPPORT = "support"
    """Where desktop programs keep their settings, which depends on the system."""
    CONFIG = "config"
    """`$XDG_CONFIG_HOME` or `~/.config`, on every system."""


class SwitchOff(StrEnum):
    """How a client's file marks a server as unused."""

    DISABLED = "disabled"
    """`"disabled": true` in the entry."""
    ENABLED = "enabled"
    """`"enabled": false` in the entry."""
    EXCLUDED = "excluded"
    """The name in a list elsewhere in the file."""
    REMOVED = "removed"
    """It cannot: the entry must be removed."""


class FilePlace(NamedTuple):
    """A file of a client, which may or may not exist."""

    path: Path
    kind: FileKind
    servers: tuple[KeyPath, ...]
    """Where in the file servers may be; an added one goes to the first place."""
    project: Path | None = None
    """The folder that these servers belong to; None for the user's own."""

    @property
    def leads_out(self) -> bool:
        """Whether a project's file is really elsewhere: a cloned repository could redirect our edits to any file."""
        if self.project is None:
            return False
        return not Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(self.project))


class KnownFile(NamedTuple):
    """A user's file, independent of the machine."""

    base: Base
    path: str
    servers: tuple[KeyPath, ...] = (("mcpServers",),)
    kind: FileKind = FileKind.JSON
    folder_variable: str = ""
    """An environment variable that names the folder of this file."""
    file_variable: str = ""
    """An environment variable that names this file."""
    on_windows: str = ""
    """The path below %APPDATA%, if different on Windows."""

    def located(self, home: Path, environment: Mapping[str, str], platform: str) -> Path:
        if named := environment.get(self.file_variable, ""):
            return _absolute(named, home)
        if named := environment.get(self.folder_variable, ""):
            return _absolute(named, home) / Path(self.path).name
        if self.on_windows and platform == "win32":
            return _support_folder(home, environment, platform) / self.on_windows
        return _folder(self.base, home, environment, platform) / self.path


class ProjectEntry(NamedTuple):
    """An entry for one folder, in a user's file."""

    folder: str
    name: str
    value: Any
    at: KeyPath
    """The keys that lead to it."""
    is_off: bool = False
    """Whether something outside the entry switches it off."""

    def __repr__(self) -> str:
        # Without the value, which may hold secrets.
        return f"ProjectEntry({self.folder!r}, {self.name!r})"


class FileSigns(NamedTuple):
    """How to recognise a client's file in a place that is not the client's."""

    wrote: Callable[[Mapping[str, Any], FileKind], bool]
    """Whether the client wrote a document of this kind."""
    line: re.Pattern[str] | None = None
    """A sign of the client in a text that is not JSON."""
    is_foreign: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a JSON document has servers in another form than server files."""


class ClientProgram(NamedTuple):
    """A client: its names, its files and its spelling."""

    name: str
    title: str
    known_files: tuple[KnownFile, ...] = ()
    """None for a program that keeps no servers in a file."""
    in_projects: tuple[str, ...] = ()
    """Files below a project's folder."""
    is_of_project: bool = False
    """Whether all files in the folder of the first one belong to that project, for their variables."""
    switch_off: SwitchOff = SwitchOff.REMOVED
    sign: str = ""
    """A folder in the user's home that shows that the client is installed, if its file's folder does not."""
    needs_file: bool = False
    """Whether the client ignores a file that has only our entry."""
    chosen: Callable[[Any], tuple[KeyPath, ...]] | None = None
    """Which of the places for servers a document uses, if versions of the client differ."""
    project_entries: Callable[[Any], Iterator[ProjectEntry]] | None = None
    """The entries for single folders in a user's document."""
    signs: FileSigns | None = None
    reading: EntryReading = EntryReading()
    writing: EntryWriting = EntryWriting()
    commands: OwnCommands = OwnCommands()
    permissions: PermissionReading = PermissionReading()

    def __hash__(self) -> int:
        # There is one value for each client; its parts have no hashes.
        return id(self)

    @property
    def kind(self) -> FileKind:
        """The format of its main file."""
        return self.known_files[0].kind

    def files(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[FilePlace, ...]:
        """The user's files, the main one first. `platform` is spelled as in `sys.platform`."""
        return tuple(
            FilePlace(one.located(home, environment, platform), one.kind, one.servers) for one in self.known_files
        )

    def project_files(self, project: Path) -> tuple[FilePlace, ...]:
        """A project's files, the main one first."""
        main = self.known_files[0]
        return tuple(FilePlace(project / path, main.kind, main.servers, project) for path in self.in_projects)

    def folders(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[Path, ...]:
        """Folders that show, if one exists, that the client is installed; that of its main file first."""
        found = (one.located(home, environment, platform).parent for one in self.known_files)
        return tuple(home / self.sign if self.sign and one == home else one for one in found)

    def servers_in(self, document: Any, place: FilePlace) -> tuple[KeyPath, ...]:
        """The places in a document of the client where servers may be."""
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
    """A path from the environment. A relative one, or one with `~`, starts from the given home."""
    return home / named.removeprefix("~/")
