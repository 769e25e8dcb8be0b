"""Carries out a planned change of a client's file, keeping a copy first; and finds the exact undo of a change.

Called by the command line after it has shown the change and asked. Starts no process: the command line runs a client's
own command.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from mcp_optimizer.config.clients.backups import Backup, Backups, digest
from mcp_optimizer.config.clients.connecting import FileChange, has_entry, is_empty
from mcp_optimizer.config.clients.finding import LARGEST, content_of
from mcp_optimizer.config.textfiles.reading import UnreadableText
from mcp_optimizer.config.textfiles.writing import remove_file, replace_file


def write(change: FileChange, backups: Backups) -> None:
    """Write a connected file. If it raises OSError, nothing was changed."""
    path = change.place.path
    folder = "" if path.parent.exists() else str(path.parent)
    # The record exists before the file changes; the record of a failed change matches no file.
    _keep(change, backups, digest(change.text.encode()), folder=folder)
    path.parent.mkdir(parents=change.place.project is not None, exist_ok=True)
    replace_file(path, change.text, expected=change.content)


def note_command(change: FileChange, backups: Backups) -> bool:
    """Keep a copy after the client's own command ran. False if the command did not write our entry."""
    if not has_entry(change):
        return False
    try:
        after = content_of(change.place.path, LARGEST[change.place.kind])
    except UnreadableText:
        return False
    _keep(change, backups, digest(after), by_command=True)
    return True


def exact_undo(change: FileChange, backups: Backups) -> FileChange:
    """The change that disconnects: it restores the exact bytes from before, if the file has not changed since."""
    backup = backups.latest(change.place.path, change.name)
    if backup is None:
        return change
    if backup.restores and digest(change.content) == backup.after:
        try:
            before = backups.content(backup)
        except OSError:
            return change
        return replace(change, text="" if before is None else before.decode("utf-8"), removes_file=before is None)
    if not backup.before and is_empty(change.text, change.place):
        return replace(change, removes_file=True)
    return change


def is_by_command(change: FileChange, backups: Backups) -> bool:
    """Whether the client's own command wrote our entry, and the file has changed since."""
    backup = backups.latest(change.place.path, change.name)
    return backup is not None and backup.by_command and digest(change.content) != backup.after


def take_out(change: FileChange, backups: Backups) -> None:
    """Write, or remove, a file without our entry. If it raises OSError, nothing was changed."""
    path, content = change.place.path, change.content
    if change.removes_file:
        backup = backups.latest(path, change.name)
        assert content is not None
        remove_file(path, expected=content)
        if backup is not None and backup.folder == str(path.parent) and not any(path.parent.iterdir()):
            path.parent.rmdir()
    else:
        replace_file(path, change.text, expected=content)
    backups.forget(path, change.name, moves=bool(change.restored))


def _keep(change: FileChange, backups: Backups, after: str, *, folder: str = "", by_command: bool = False) -> None:
    path = change.place.path
    content, restores = change.content, not change.is_update
    earlier = backups.latest(path, change.name)
    if change.is_update and earlier is not None and earlier.restores and earlier.after == digest(change.content):
        try:
            # An undo goes back to before the first entry.
            content, restores, folder = backups.content(earlier), True, folder or earlier.folder
        except OSError:
            restores = False
    backup = Backup(
        client=change.client.name,
        name=change.name,
        path=os.fspath(Path(path)),
        copy="",
        before=digest(content),
        after=after,
        restores=restores,
        folder=folder,
        by_command=by_command,
    )
    backups.keep(backup, content)
