"""Sockets in a folder that only their user can enter. Used for commands (`app/control`) and for clients that share a
gateway; knows nothing of what is said there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

APP_NAME = "mcp-optimizer"

CAN_CONTROL = hasattr(socket, "AF_UNIX") and hasattr(os, "getuid")
"""Whether this system has sockets that belong to a user. Windows does not."""

_LONGEST_PATH = 100
"""Longest path of a socket, in bytes, that every system accepts."""
_LONGEST_NAME = 32
_MOST_ENTRIES = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Folders that may hold sockets, the preferred one first; one whose path is too long is left out."""
    return list(_folders(environment))


def _folders(environment: Mapping[str, str]) -> Iterator[Path]:
    for folder in _places(environment):
        if len(os.fsencode(folder)) + 1 + _LONGEST_NAME <= _LONGEST_PATH:
            yield folder


def _places(environment: Mapping[str, str]) -> Iterator[Path]:
    if (runtime := environment.get("XDG_RUNTIME_DIR", "")) and Path(runtime).is_absolute():
        yield Path(runtime) / APP_NAME
    yield user_state_path(APP_NAME) / "control"
    # Imported only here: it loads much, and one of the folders before nearly always does.
    from tempfile import gettempdir

    yield Path(gettempdir()) / f"{APP_NAME}-{os.getuid()}"


def is_private(folder: Path) -> bool:
    """Whether this is a folder of ours that no other user can enter; a link to one does not count."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS


def made_folder(environment: Mapping[str, str]) -> Path | None:
    """The first folder that is private or can be made so; None if there is none."""
    for folder in _folders(environment):
        with contextlib.suppress(OSError):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder):
            return folder
    return None


def bound_socket(folder: Path, name: str) -> tuple[socket.socket, Path]:
    """A listening socket that only its owner can use. The name holds our process id, so an old one there is dead."""
    # A process that finds a socket which refuses connections treats it as a dead gateway's, and removes it.
    path, unfinished = folder / name, folder / f".{os.getpid()}"
    unfinished.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(unfinished))
        unfinished.chmod(0o600)
        made.listen(128)
        made.setblocking(False)
        unfinished.rename(path)
    except OSError:
        made.close()
        unfinished.unlink(missing_ok=True)
        raise
    return made, path


def is_own_user(connection: socket.socket | TransportSocket) -> bool:
    """Whether the peer runs as our user; where the system cannot say, the folder must keep others out."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(user == os.getuid())


def sockets_named(is_wanted: Callable[[str], bool], places: Iterable[Path]) -> list[Path]:
    """The sockets with such names in these folders, newest first. Skips links and files of other users."""
    found: list[tuple[float, Path]] = []
    for folder in places:
        if not is_private(folder):
            continue
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if entry.name.endswith(".sock") and is_wanted(entry.name):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISSOCK(about.st_mode) and about.st_uid == os.getuid():
                        found.append((about.st_mtime, folder / entry.name))
    return [path for _, path in sorted(found, reverse=True)]
