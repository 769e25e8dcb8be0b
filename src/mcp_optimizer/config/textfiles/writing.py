"""Replaces a file as a whole or not at all, and only if its content is still what was read.

Called with a text that `editing` made. The new file is written beside the old one, then replaces it and keeps its owner
and mode; a symbolic link stays one, and its target is replaced.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_PRIVATE = 0o600
_PATIENCE = 5.0
_PAUSE = 0.005


class FileChanged(OSError):
    """Another program changed the file after it was read."""


def remove_file(path: Path, *, expected: bytes) -> None:
    """Remove a file if its content is still what was read."""
    target = Path(os.path.realpath(path))
    with _alone_in(target.parent):
        _refuse_changed(target, expected)
        target.unlink()


def replace_file(path: Path, text: str, *, expected: bytes | None, private: bool = False) -> None:
    """Write `text` to a file. `expected`: the bytes that were read from it, or None if there was no file.

    `private`: from now on, only its owner can read it.
    """
    target = Path(os.path.realpath(path))
    content = text.encode()
    _refuse_changed(target, expected)
    before = target.stat() if expected is not None else None
    mode = stat.S_IMODE(before.st_mode) if before is not None else _PRIVATE
    # Checks the mode as well, because root may write to every file.
    if before is not None and not (mode & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(13, "The file is read-only", str(target))
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            _give_to_owner(name, before, target)
        os.chmod(name, mode & _PRIVATE if private else mode)
        with _alone_in(target.parent):
            _refuse_changed(target, expected)
            os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _give_to_owner(name: str, before: os.stat_result, target: Path) -> None:
    """Give a new file the owner of the old one: a file that root edits stays the user's."""
    now = os.stat(name)
    if not hasattr(os, "chown") or (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.chown(name, before.st_uid, before.st_gid)
    except PermissionError:
        raise PermissionError(13, "The file belongs to another user or group", str(target)) from None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes of ours that replace files. Goes on without the lock after a while."""
    with contextlib.ExitStack() as held:
        # Some folders cannot be opened, and some network folders do not support locks.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            _lock(descriptor)
        yield


def _lock(descriptor: int) -> None:
    if sys.platform != "win32":
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
            else:
                return


def _refuse_changed(target: Path, expected: bytes | None) -> None:
    try:
        with target.open("rb") as file:
            # One more byte than expected is enough to detect a change.
            found: bytes | None = file.read(len(expected or b"") + 1)
    except FileNotFoundError:
        found = None
    if found != expected:
        raise FileChanged(f"{target} changed since it was read; nothing was written. Run the command again")
