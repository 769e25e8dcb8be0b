"""A lock between processes: a file that one of them holds. The system releases it when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PAUSE = 0.005
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Whether the lock was taken, within `seconds`: a process that was stopped while it holds the lock stops nobody."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
    try:
        yield _taken(descriptor, seconds)
    finally:
        # This releases it.
        os.close(descriptor)


def _taken(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _take(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _take(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
