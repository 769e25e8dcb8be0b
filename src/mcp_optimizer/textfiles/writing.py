"""Replaces a file as a whole, or not at all, and only if it is still what was read.

Called with a text that `editing` made. The new file is written beside the old one and takes its place and its mode;
a symbolic link stays one, and what it points to is replaced.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


class FileChanged(OSError):
    """Somebody else wrote the file after it was read."""


def remove_file(path: Path, *, expected: bytes) -> None:
    """Remove a file that is still what was read."""
    target = Path(os.path.realpath(path))
    _refuse_changed(target, expected)
    target.unlink()


def replace_file(path: Path, text: str, *, expected: bytes | None) -> None:
    """Write `text` to a file. `expected`: the bytes that were read from it, or None if there was no file."""
    target = Path(os.path.realpath(path))
    content = text.encode()
    _refuse_changed(target, expected)
    mode = stat.S_IMODE(target.stat().st_mode) if expected is not None else 0o600
    # By its mode as well: to root, every file is writable.
    if expected is not None and not (mode & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(13, "The file is read-only", str(target))
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        _refuse_changed(target, expected)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _refuse_changed(target: Path, expected: bytes | None) -> None:
    try:
        with target.open("rb") as file:
            # One byte more than expected is enough to know.
            found: bytes | None = file.read(len(expected or b"") + 1)
    except FileNotFoundError:
        found = None
    if found != expected:
        raise FileChanged(f"{target} changed since it was read; nothing was written. Run the command again")
