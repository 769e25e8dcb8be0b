"""The audit as a file: one line of JSON an entry, only added to, put aside when it is large.

Several gateways may write to one file: they take turns by a lock file. Called by the trail in a thread and by commands;
blocks while it writes, and raises OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from mcp_optimizer.audit.lines import Chain, hash_of
from mcp_optimizer.audit.lock import locked
from mcp_optimizer.audit.options import AuditOptions
from mcp_optimizer.db.private_files import make_folder
from mcp_optimizer.domain.audit import AuditEntry

_PATIENCE = 2.0
"""Seconds for another process to finish its batch. Without the lock, lines are still added whole, but nothing is put
aside.
"""

_LONGEST_LINE = 512 * 1024
_LONGEST_MARK = 200
"""Bytes that a batch may grow by when it is placed after a line of another file or process."""
_OPTIONAL = ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, name, 0) for name in _OPTIONAL)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class AuditFile:
    """The file of one process, with its own chain of lines."""

    def __init__(self, path: Path, megabytes: float, files: int, patience: float = _PATIENCE) -> None:
        self.path = path
        self._most_bytes = megabytes * 1_000_000
        self._files = files
        self._patience = patience
        self._chain: Chain | None = None
        self._last = (0, 0)
        """Where the last line of our chain begins and ends, if it is still in this file."""

    @classmethod
    def of(cls, options: AuditOptions) -> AuditFile | None:
        return cls(options.file, options.megabytes, options.files) if options.file is not None else None

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries: all of them, or none and an OSError."""
        if not entries:
            return
        make_folder(self.path.parent)
        with locked(lock_of(self.path), self._patience) as is_alone:
            chain = self._chain or Chain.begun()
            data, after = chain.written(entries)
            if is_alone:
                self._make_room(len(data) + _LONGEST_MARK)
            if not (is_alone and self._is_here(chain)):
                data, after = chain.placed(self._last_line() if is_alone else b"").written(entries)
            # A chain that may be torn is not continued.
            self._chain = None
            self._write(data, is_alone=is_alone)
            self._chain = after

    def _make_room(self, more: int) -> None:
        descriptor = _opened(self.path)
        try:
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size and size + more > self._most_bytes:
            put_aside(self.path, self._files)

    def _is_here(self, chain: Chain) -> bool:
        """Whether the chain's last line is in this file, which another process may have put aside since."""
        begin, end = self._last
        with contextlib.suppress(FileNotFoundError), os.fdopen(_opened(self.path, _FLAGS & ~os.O_CREAT), "rb") as file:
            file.seek(begin)
            return chain.number > 0 and hash_of(file.read(end - begin)) == chain.previous
        return False

    def _write(self, data: bytes, *, is_alone: bool) -> None:
        descriptor = _opened(self.path)
        try:
            size = os.fstat(descriptor).st_size
            _write_all(descriptor, data, size if is_alone else None)
        finally:
            os.close(descriptor)
        self._last = size + data.rfind(b"\n", 0, -1) + 1, size + len(data) - 1

    def _last_line(self) -> bytes:
        """The line before ours, here or in the file that was put aside last."""
        for path in (self.path, aside(self.path, 1)):
            with contextlib.suppress(FileNotFoundError):
                descriptor = _opened(path, _FLAGS & ~os.O_CREAT)
                with os.fdopen(descriptor, "rb") as file:
                    file.seek(max(0, os.fstat(descriptor).st_size - _LONGEST_LINE))
                    if line := file.read().rstrip(b"\n").rpartition(b"\n")[2]:
                        return line
        return b""


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def aside(path: Path, number: int) -> Path:
    """A file that was put aside; the higher its number, the older."""
    return path.with_name(f"{path.name}.{number}")


def put_aside(path: Path, files: int) -> None:
    """Make room for a new file; the oldest beyond `files` goes."""
    if files < 1:
        path.unlink()
        return
    for number in range(files - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(aside(path, number), aside(path, number + 1))
    os.replace(path, aside(path, 1))


def _opened(path: Path, flags: int = _FLAGS) -> int:
    """A regular file that only its owner can read; never what a link points to."""
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path} is a symbolic link; name the file itself with audit_file") from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"{path} is not a file; name one with audit_file")
        if found.st_mode & _OTHERS and hasattr(os, "fchmod"):
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, data: bytes, size: int | None) -> None:
    """Write everything at once. What was written of a batch that did not fit is removed, if nobody wrote after it."""
    written = 0
    try:
        written = os.write(descriptor, data)
        if written < len(data):
            written += os.write(descriptor, data[written:])
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        if size is not None and written:
            os.ftruncate(descriptor, size)
        raise
