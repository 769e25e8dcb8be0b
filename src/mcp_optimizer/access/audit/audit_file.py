"""The audit file: append-only, one line of JSON per entry, rotated when it is large, and checked by `audit --verify`.

Each line contains the hash of the previous one, which reveals removed and changed lines. Several gateways may share one
file, so every process writes its own chain; a lock file makes them take turns. Called by commands, and by the trail in
a thread; blocks while it writes, and raises OSError.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.largejson.compact_json import compact_bytes
from mcp_optimizer.runtime.local_files import make_folder


@dataclass(frozen=True)
class AuditOptions:
    """Where entries are written, what they contain, and how long they are kept."""

    file: Path | None = None
    """None: write only to the table."""
    megabytes: float = 10.0
    """The size at which the file is rotated."""
    files: int = 5
    """How many rotated files are kept."""
    days: float = 365.0
    """How long the table keeps an entry."""
    arguments: bool = False
    """Whether entries contain arguments."""


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PAUSE = 0.005
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Yield whether the lock was taken within `seconds`: a suspended process that holds it must not block others."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
    try:
        yield _taken(descriptor, seconds)
    finally:
        # Closing the descriptor releases the lock.
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


_ASCII = json.JSONEncoder(separators=(",", ":"))
_KEYS = ("at", *AuditEntry._fields[1:])


@dataclass(frozen=True)
class Chain:
    """A process's position in its chain: the number of its next line, and the hash of its last one."""

    id: str
    number: int
    previous: str
    after: str | None = None
    """The hash of the line that precedes the next one in the file, from any process; None if our last line is in the
    same file.
    """

    @classmethod
    def begun(cls) -> Chain:
        """A new chain."""
        return cls(secrets.token_hex(8), 0, "")

    def placed(self, after: bytes) -> Chain:
        """This chain, begun or continued in another file after the given line. Empty: the preceding line is unknown."""
        found = hash_of(after) if after else ""
        return replace(self, after=found) if self.number else replace(self, previous=found)

    def written(self, entries: Sequence[AuditEntry]) -> tuple[bytes, Chain]:
        """The entries as lines, and the chain after them."""
        previous, lines = self.previous, list[bytes]()
        for number, entry in enumerate(entries, start=self.number):
            line = _line(entry, self.id, number, previous, self.after if number == self.number else None)
            previous = hash_of(line)
            lines += (line, b"\n")
        return b"".join(lines), Chain(self.id, self.number + len(entries), previous)


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def values_of(entry: AuditEntry) -> dict[str, Any]:
    """An entry as programs read it: the time as ISO 8601, and arguments only if they were kept."""
    values: dict[str, Any] = dict(zip(_KEYS, entry, strict=True))
    seconds, further = divmod(entry.at_ms, 1_000)
    values["at"] = f"{_second(seconds)}.{further:03}Z"
    if entry.arguments is None:
        del values["arguments"]
    return values


@lru_cache(maxsize=2)
def _second(number: int) -> str:
    """A second since 1970 as ISO 8601. Cached, because all entries of a batch fall into one or two seconds."""
    return datetime.fromtimestamp(number, UTC).replace(tzinfo=None).isoformat()


def _line(entry: AuditEntry, chain: str, number: int, previous: str, after: str | None) -> bytes:
    values = values_of(entry)
    values["chain"], values["number"], values["previous"] = chain, number, previous
    if after is not None:
        values["after"] = after
    line = compact_bytes(values)
    if not line.isascii():
        # Escaped so that no character of a name can end the line or control a terminal.
        line = _ASCII.encode(values).encode("ascii")
    return line.replace(b"\x7f", b"\\u007f")


_PATIENCE = 2.0
"""Seconds to wait for another process to finish its batch. Without the lock, whole lines are still appended, but the
file is not rotated.
"""

_LONGEST_WRITTEN = 512 * 1024
_LONGEST_MARK = 200
"""Bytes by which a batch may grow when it follows a line of another file or process."""
_OPTIONAL = ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, name, 0) for name in _OPTIONAL)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class AuditFile:
    """One process's access to the file, with its own chain of lines."""

    def __init__(self, path: Path, megabytes: float, files: int, patience: float = _PATIENCE) -> None:
        self.path = path
        self._most_bytes = megabytes * 1_000_000
        self._files = files
        self._patience = patience
        self._chain: Chain | None = None
        self._last = (0, 0)
        """Offsets of the start and end of our chain's last line, if it is still in this file."""

    @classmethod
    def of(cls, options: AuditOptions) -> AuditFile | None:
        return cls(options.file, options.megabytes, options.files) if options.file is not None else None

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append all entries, or none and raise OSError."""
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
            # Forget the chain until the write succeeds: a chain that may be torn is not continued.
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
        """Whether the chain's last line is in this file, which another process may have rotated since."""
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
        """The line that precedes ours, in this file or in the most recently rotated one."""
        for path in (self.path, aside(self.path, 1)):
            with contextlib.suppress(FileNotFoundError):
                descriptor = _opened(path, _FLAGS & ~os.O_CREAT)
                with os.fdopen(descriptor, "rb") as file:
                    file.seek(max(0, os.fstat(descriptor).st_size - _LONGEST_WRITTEN))
                    if line := file.read().rstrip(b"\n").rpartition(b"\n")[2]:
                        return line
        return b""


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def aside(path: Path, number: int) -> Path:
    """The path of a rotated file; higher numbers are older."""
    return path.with_name(f"{path.name}.{number}")


def put_aside(path: Path, files: int) -> None:
    """Rotate: rename the file, and drop the oldest beyond `files`."""
    if files < 1:
        path.unlink()
        return
    for number in range(files - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(aside(path, number), aside(path, number + 1))
    os.replace(path, aside(path, 1))


def _opened(path: Path, flags: int = _FLAGS) -> int:
    """Open a regular file that only its owner can read; never follows a symbolic link."""
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
    """Write everything at once. `size`: the length to cut the file back to if a batch does not fit; None if another
    process may have written after it.
    """
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


# Checks the chains in an audit file and its rotated files: reports missing and changed lines. Not detectable: a
# change to or removal of the last line of a chain, or of a whole chain, if nothing was written after it; and a file
# that was rewritten completely.

_LONGEST_READ = 1_000_000
_MOST_PROBLEMS = 100
_NEAR = 1_000
"""Recent lines searched for the one that a line claims to follow: a batch may have been written in between."""


@dataclass(frozen=True)
class Verified:
    """The files and lines that were checked, and the problems found."""

    files: tuple[Path, ...]
    lines: int
    chains: int
    problems: tuple[str, ...]


def kept_files(path: Path, files: int) -> tuple[list[Path], bool]:
    """The file and its rotated files, oldest first; and whether none can have been deleted by rotation."""
    found = [old for number in range(files, 0, -1) if (old := aside(path, number)).exists()]
    return [*found, *([path] if path.exists() else [])], len(found) < files


def verify(paths: Sequence[Path], *, is_complete: bool) -> Verified:
    """Check the files, oldest first. `is_complete`: no older file was deleted by rotation."""
    check = _Check(is_complete=is_complete)
    for path in paths:
        for number, line in enumerate(_lines(path), start=1):
            if (problem := check.problem_with(line)) is not None:
                check.note(f"{path.name}, line {number}: {problem}")
    return Verified(tuple(paths), check.lines, len(check.chains), tuple(check.problems))


class _Check:
    def __init__(self, *, is_complete: bool) -> None:
        self._is_complete = is_complete
        self._recent: deque[str] = deque(maxlen=_NEAR)
        self.chains: dict[str, tuple[int, str]] = {}
        self.lines = 0
        self.problems: list[str] = []

    def note(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)

    def problem_with(self, line: bytes) -> str | None:
        """The problem with the next line, if any."""
        self.lines += 1
        link = _link(line)
        found = hash_of(line)
        if link is None:
            self._recent.append(found)
            return "not a line of an audit, or only a part of one"
        chain, number, previous, after = link
        before = self.chains.get(chain)
        if before is None:
            problem = self._first(number, previous, after)
        else:
            problem = _next(before, number, previous) or self._place(after)
        self.chains[chain] = (number, found)
        self._recent.append(found)
        return problem

    def _first(self, number: int, previous: str, after: str | None) -> str | None:
        """The problem with the first line found of a chain, if any."""
        if not number:
            return self._place(previous)
        if self._is_complete:
            return f"the {number:,} lines before it in its chain are missing"
        # Earlier lines may have been deleted by rotation, but only together with their file.
        return "lines before it in its chain are missing" if after is None else self._place(after)

    def _place(self, after: str | None) -> str | None:
        """The problem with a line that names the line before it, if any."""
        is_oldest = not self._recent and not self._is_complete
        if after and after not in self._recent and not is_oldest:
            return "the line that stood before it is missing or was changed"
        return None


def _next(before: tuple[int, str], number: int, previous: str) -> str | None:
    last, found = before
    if number > last + 1:
        return f"{number - last - 1:,} lines before it in its chain are missing"
    if number <= last:
        return "a line of its chain stands there twice, or in another order"
    return None if previous == found else "the line before it in its chain was changed"


def _link(line: bytes) -> tuple[str, int, str, str | None] | None:
    try:
        values: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    chain, number, previous = values.get("chain"), values.get("number"), values.get("previous")
    if not isinstance(chain, str) or type(number) is not int or number < 0 or not isinstance(previous, str):
        return None
    after = values.get("after")
    return (chain, number, previous, after) if after is None or isinstance(after, str) else None


def _lines(path: Path) -> Iterator[bytes]:
    """Each line without its newline; an overlong line comes in parts, none of which is a valid audit line."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_READ):
            yield line.removesuffix(b"\n")
