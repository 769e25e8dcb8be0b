"""Files and folders that only their owner may read: what we write holds results, usage, or somebody's keys.

New ones are made so; ours that are found open to others are mended. A folder that the user named, and that was there
before, is the user's own and stays as it is. Called by the database and by the commands that write files. Where a
system has no such permissions, nothing happens.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, as far as they are missing."""
    above = [path for path in folder.parents if not path.exists()]
    for path in (*reversed(above), folder):
        # Also if another gateway makes it at the same moment.
        path.mkdir(mode=_FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """See that there is a file, that only its owner reads."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE))
    mend(path)


def write_file(path: Path, text: str) -> None:
    """Write a text into a file; what stood there before is gone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # While it is still empty.
        mend(path)
        file.write(text)


def mend(path: Path) -> None:
    """Take from others what they may do with a file or folder of ours. What is neither, a pipe, stays as it is."""
    try:
        found = path.stat()
        is_file = stat.S_ISREG(found.st_mode)
        if found.st_mode & _OTHERS and (is_file or stat.S_ISDIR(found.st_mode)):
            path.chmod(_FILE if is_file else _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        logger.warning("Other users can read %s, and its permissions cannot be changed: %s.", path, error.strerror)
