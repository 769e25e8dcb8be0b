"""Looks at files that others may change at any moment: whether they did, and what they say. Never waits for a pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

Sign = tuple[int, int, int, int] | None
"""The same as long as a file is; None if there is none. Of a link, that of the file it leads to."""


class NotRegular(OSError):
    """What is at a path is not a file of a reasonable size."""


def sign_of(path: Path) -> Sign:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file; raises OSError if it is none, or if it has more than `most` of them."""
    return _read(path, most, lambda _found: None)


def read_own(path: Path, most: int, *, forbidden: int = 0) -> bytes:
    """The bytes of a file that is this user's or root's. `forbidden`: what its mode must not permit."""

    def refuse(found: os.stat_result) -> None:
        # Where users have no numbers, the system keeps them apart by other means.
        if hasattr(os, "getuid") and found.st_uid not in (0, os.getuid()):
            raise NotRegular("it belongs to another user")
        if hasattr(os, "getuid") and found.st_mode & forbidden:
            raise NotRegular("other users can write it")

    return _read(path, most, refuse)


def _read(path: Path, most: int, refuse: Callable[[os.stat_result], None]) -> bytes:
    # Without O_NONBLOCK, opening a pipe waits for somebody who writes to it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular("it is not a regular file")
        refuse(found)
        content = file.read(most + 1)
    if len(content) > most:
        raise NotRegular(f"it is larger than {most:,} bytes")
    return content
