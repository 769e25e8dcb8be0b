"""The sockets of running gateways, in a folder that only their user can enter.

Called by the listener, which creates a socket, and by commands, which look for sockets. Knows nothing of messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from platformdirs import user_state_path

from mcp_optimizer.config.settings import APP_NAME, Settings

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

CAN_CONTROL = hasattr(socket, "AF_UNIX") and hasattr(os, "getuid")
"""Whether this system has sockets that belong to a user. Windows does not."""

_LONGEST_PATH = 100
"""Longest path of a socket, in bytes, that every system accepts."""
_LONGEST_NAME = 32
_MOST_ENTRIES = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def identity(settings: Settings) -> str:
    """A digest of what a gateway and a command must share: the servers and their database."""
    source = "demo" if settings.demo else os.path.realpath(settings.server_file)
    place = settings.database_place
    if isinstance(place, Path):
        stored = os.path.realpath(place)
    else:
        url = urlsplit(place or "none")
        # Without the password: nothing may be derived from it.
        stored = f"{url.scheme} {url.username or ''} {url.hostname or ''} {url.port or ''} {url.path}" if place else ""
    chosen = sorted(name for name in (part.strip() for part in settings.servers.split(",")) if name)
    known = json.dumps([source, settings.demo, chosen, stored])
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Folders that may hold sockets, the preferred one first; one whose path is too long is left out."""
    found = [user_state_path(APP_NAME) / "control", Path(tempfile.gettempdir()) / f"{APP_NAME}-{os.getuid()}"]
    if (runtime := environment.get("XDG_RUNTIME_DIR", "")) and Path(runtime).is_absolute():
        found.insert(0, Path(runtime) / APP_NAME)
    return [folder for folder in found if len(os.fsencode(folder)) + 1 + _LONGEST_NAME <= _LONGEST_PATH]


def is_private(folder: Path) -> bool:
    """Whether this is a folder of ours that no other user can enter; a link to one does not count."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS


def made_folder(environment: Mapping[str, str]) -> Path | None:
    """The first folder that is private or can be made so; None if there is none."""
    for folder in folders(environment):
        with contextlib.suppress(OSError):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder):
            return folder
    return None


def bound_socket(folder: Path, name: str) -> tuple[socket.socket, Path]:
    """A listening socket that only its owner can use. The name holds our process id, so an old one there is dead."""
    # A command treats a socket that refuses connections as a dead gateway's, and removes it.
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


def socket_name(of: str, pid: int) -> str:
    return f"{of}-{pid}.sock"


def sockets(of: str, environment: Mapping[str, str]) -> list[Path]:
    """The sockets of gateways with this identity, newest first. Skips links and files of other users."""
    found: list[tuple[float, Path]] = []
    for folder in folders(environment):
        if not is_private(folder):
            continue
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if entry.name.startswith(f"{of}-") and entry.name.endswith(".sock"):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISSOCK(about.st_mode) and about.st_uid == os.getuid():
                        found.append((about.st_mtime, folder / entry.name))
    return [path for _, path in sorted(found, reverse=True)]
