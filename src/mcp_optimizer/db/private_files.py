"""Files and folders that only their owner can read, because they contain results, usage, or keys.

New ones are created that way; our own that are open to others are corrected. An existing folder that the user chose
stays as it is. Called by the database and by commands that write files. Does nothing on systems without such
permissions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from threading import Lock

logger = logging.getLogger(__name__)

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_making = Lock()


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents."""
    above = [path for path in folder.parents if not path.exists()]
    for path in (*reversed(above), folder):
        # Another gateway may create it at the same moment.
        path.mkdir(mode=_FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Make sure that a file exists and only its owner can read it. One that exists is not opened: closing it would end
    the locks that this process has on it, and so SQLite's.
    """
    # Nor does anybody of this process open it between the two steps. A link may lead to where there is no file yet.
    with _making, contextlib.suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE))
    mend(path)


def write_file(path: Path, text: str) -> None:
    """Write a text into a file, replacing its content."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # While it is still empty.
        mend(path)
        file.write(text)


def replace_file(path: Path, text: str) -> None:
    """Write a text into a file. Whatever happens meanwhile, even a power failure, leaves the old content or the new."""
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
    # Only POSIX opens folders; elsewhere the system writes them down by itself.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def mend(path: Path) -> None:
    """Remove other users' permissions on a file or folder of ours. Anything else, such as a pipe, stays as it is."""
    try:
        found = path.stat()
        is_file = stat.S_ISREG(found.st_mode)
        if found.st_mode & _OTHERS and (is_file or stat.S_ISDIR(found.st_mode)):
            path.chmod(_FILE if is_file else _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        logger.warning("Other users can read %s, and its permissions cannot be changed: %s.", path, error.strerror)
