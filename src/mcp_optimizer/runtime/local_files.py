"""Reads files that other programs may change at any time, and writes files that only their owner can read.

Reading never waits for a pipe and never exceeds a size limit. New private files and folders are created with private
permissions, because they contain results, usage or keys; the permissions of our own that are open to other users are
corrected; an existing folder that the user chose keeps its permissions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock

Sign = tuple[int, int, int, int] | None
"""Identifies the version of a file: equal as long as the file is unchanged; None if there is none. A link has the sign
of its target.
"""


class NotRegularFile(OSError):
    """The path does not lead to a regular file of an acceptable size."""


def sign_of(path: Path) -> Sign:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file; raises OSError if it is not a regular file, or has more than `most` bytes."""
    return _read(path, most, lambda _found: None)


def read_own(path: Path, most: int, *, forbidden: int = 0) -> bytes:
    """The bytes of a file that belongs to this user or root. `forbidden`: bits that its mode must not have."""

    def refuse(found: os.stat_result) -> None:
        # On systems without numeric user ids, the system itself keeps users apart.
        if hasattr(os, "getuid") and found.st_uid not in (0, os.getuid()):
            raise NotRegularFile("it belongs to another user")
        if hasattr(os, "getuid") and found.st_mode & forbidden:
            raise NotRegularFile("other users can write it")

    return _read(path, most, refuse)


def _read(path: Path, most: int, refuse: Callable[[os.stat_result], None]) -> bytes:
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularFile("it is not a regular file")
        refuse(found)
        content = file.read(most + 1)
    if len(content) > most:
        raise NotRegularFile(f"it is larger than {most:,} bytes")
    return content


logger = logging.getLogger(__name__)

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_making = Lock()


def make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents."""
    above = [path for path in folder.parents if not path.exists()]
    for path in (*reversed(above), folder):
        # Another gateway may create it at the same time.
        path.mkdir(mode=_FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Makes sure that a file exists and that only its owner can read it. An existing file is not opened: closing it
    would release the locks that this process holds on it, including SQLite's.
    """
    # The lock keeps other threads from opening it between the two steps. A link may lead to a file that does not exist
    # yet.
    with _making, contextlib.suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE))
    mend(path)


def write_file(path: Path, text: str) -> None:
    """Writes a text to a file, replacing its content."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # While it is still empty.
        mend(path)
        file.write(text)


def replace_file(path: Path, text: str) -> None:
    """Writes a text to a file. After any failure, even of the power, the file has either the old or the new content."""
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Only POSIX can open folders; other systems write them to disk by themselves.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def mend(path: Path) -> None:
    """Removes other users' permissions on a file or folder of ours. Anything else, such as a pipe, is left alone."""
    try:
        found = path.stat()
        is_file = stat.S_ISREG(found.st_mode)
        if found.st_mode & _OTHERS and (is_file or stat.S_ISDIR(found.st_mode)):
            path.chmod(_FILE if is_file else _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        logger.warning("Other users can read %s, and its permissions cannot be changed: %s.", path, error.strerror)
