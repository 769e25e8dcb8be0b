"""Copies of clients' files from before we changed them, in a folder of ours that only its owner can read.

Called by commands that change a client's file. Each copy has a record: whose file it is, and the digests before and
after, so that an undo knows whether another program changed the file in between.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from mcp_optimizer.runtime.local_files import make_folder

_MOST = 20
"""Maximum copies kept of one file."""


@dataclass(frozen=True)
class Backup:
    """The state of a file before a change."""

    client: str
    name: str
    """The name of the entry that was written; empty for other changes."""
    path: str
    copy: str
    """The path of the copy; empty if there was no file."""
    before: str
    after: str
    """Digests of the content before and after, empty where there was no file."""
    restores: bool = True
    """Whether the earlier content lacks our entry."""
    folder: str = ""
    """The folder that was created for the file."""
    by_command: bool = False
    """Whether the client's own command made the change."""
    moved: tuple[str, ...] = ()
    """Servers that were removed from the file, or switched off in it."""


def digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


class Backups:
    """The copies in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, backup: Backup, content: bytes | None) -> Backup:
        """Store the content from before a change, and its record."""
        make_folder(self._folder)
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{backup.client}-{uuid.uuid4().hex[:8]}"
        if content is not None:
            copy = self._folder / f"{stamp}.before"
            _write(copy, content)
            backup = Backup(**{**asdict(backup), "copy": str(copy)})
        _write(self._folder / f"{stamp}.json", json.dumps(asdict(backup)).encode())
        for old, one in self._records(backup.path)[_MOST:]:
            # Keep every copy from a move: the user may restore it at any time.
            if not one.moved:
                self._remove(old, one)
        return backup

    def content(self, backup: Backup) -> bytes | None:
        """The earlier content; None if there was no file. Raises OSError if the copy is gone or damaged."""
        if not backup.before:
            return None
        content = Path(backup.copy).read_bytes()
        if digest(content) != backup.before:
            raise OSError(f"The copy {backup.copy} is damaged")
        return content

    def latest(self, path: Path, name: str) -> Backup | None:
        """The newest record of a file for an entry of this name."""
        return next((one for _, one in self._records(str(path)) if one.name == name), None)

    def moves(self, client: str, path: Path | None = None) -> list[Backup]:
        """The moves out of a client's files, or out of one of them, newest first."""
        return [
            one for _, one in self._records(None if path is None else str(path)) if one.moved and one.client == client
        ]

    def forget(self, path: Path, name: str, *, moves: bool = False) -> None:
        """Mark the records of an undone change as done. The copies stay for a while."""
        for record, one in self._records(str(path)):
            if one.name == name if not one.moved else moves:
                record.rename(record.with_suffix(".done"))

    def _records(self, path: str | None) -> list[tuple[Path, Backup]]:
        """The records of a file, or of all, newest first."""
        found = []
        for record in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                said = json.loads(record.read_bytes())
                backup = Backup(**{**said, "moved": tuple(said.get("moved", ()))})
            except (OSError, ValueError, TypeError, AttributeError):
                # Not written by us, or incomplete.
                continue
            if path is None or backup.path == path:
                found.append((record, backup))
        return found

    def _remove(self, record: Path, backup: Backup) -> None:
        record.unlink(missing_ok=True)
        if backup.copy and Path(backup.copy).parent == self._folder:
            Path(backup.copy).unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
