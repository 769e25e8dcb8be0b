"""Shows and carries out a planned change of a client's file, keeping a copy first; finds the exact undo, and puts back
what was taken out.

Called by the command line after it has shown the change and asked. Starts no process: the command line runs a client's
own command.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.connecting import CannotConnect, FileChange, disconnected_text, has_entry, is_empty
from mcp_optimizer.config.clients.files import (
    LARGEST,
    FoundFile,
    ListedEntry,
    Machine,
    content_of,
    file_at,
    listing,
    places,
)
from mcp_optimizer.config.known_clients.program import ClientProgram, FilePlace, SwitchOff
from mcp_optimizer.config.textfiles.editing import CannotEdit, with_item, with_value, without_value
from mcp_optimizer.config.textfiles.kinds import FileKind, UnreadableText
from mcp_optimizer.config.textfiles.reading import parsed
from mcp_optimizer.config.textfiles.writing import remove_file, replace_file
from mcp_optimizer.runtime.local_files import make_folder
from mcp_optimizer.runtime.patterns import regex

# Copies of clients' files from before we changed them, in a folder of ours that only its owner can read. Each copy
# has a record: whose file it is, and the digests before and after, so that an undo knows whether another program
# changed the file in between.

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


# A diff of a change to a client's file that is safe to show: values that are not ours are hidden. Other entries may
# hold tokens anywhere, so every text is hidden unless it is part of our entry or really a key of the file: what looks
# like a key may be a line of a comment or of a long text.

_HIDDEN = "…"
_LONGEST = 240
_MOST_LINES = 60
_PART = regex(r'("(?:\\.|[^"\\])*"|\'[^\']*\')(\s*[:=])?|(//|#|/\*).*|([^\s"\'{}\[\],:=]+)')
_ASSIGNED = regex(r"(\s*(?:- )?\s*)([\w.\-]+|\"[^\"]*\"|'[^']*')(\s*[:=])(\s.*|)\Z")
_HEADER = regex(r"\s*\[\[?[^\]]*\]?\]\s*\Z")
_NAME = regex(r"[\w\-]+|\"[^\"]*\"|'[^']*'")
_WORDS = frozenset({"true", "false", "null"})


def shown_change(before: str, after: str, path: str, kind: FileKind, ours: Iterable[Any]) -> list[str]:
    """The lines of a unified diff. `ours`: values whose texts may be shown."""
    known = {text for value in ours for text in _texts(value)}
    keys = known | _keys_of(before, kind) | _keys_of(after, kind)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="", n=2)
    shown: list[str] = []
    for number, line in enumerate(lines):
        if number < 2 or line.startswith("@@"):
            shown.append(line)
        elif len(line) > 100 * _LONGEST:
            shown.append(line[0] + _HIDDEN)
        else:
            hidden = _of_json(line[1:], known, keys) if kind is FileKind.JSON else _of_lines(line[1:], known, keys)
            shown.append((line[0] + hidden)[:_LONGEST])
        if len(shown) > _MOST_LINES:
            return [*shown, _HIDDEN]
    return shown


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (str(key), *_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)


def _keys_of(text: str, kind: FileKind) -> set[str]:
    found: set[str] = set()
    try:
        waiting = [parsed(text, kind)]
    except UnreadableText:
        return found
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update(map(str, value))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _of_json(line: str, known: set[str], keys: set[str]) -> str:
    return _PART.sub(lambda part: _seen(part, known, keys), line)


def _seen(part: re.Match[str], known: set[str], keys: set[str]) -> str:
    quoted, colon, comment, word = part.groups()
    if quoted:
        inside = _unquoted(quoted)
        return part.group() if inside in (keys if colon else known) else f'"{_HIDDEN}"{colon or ""}'
    if comment:
        return f"{comment} {_HIDDEN}"
    return word if word in known or word in _WORDS else _HIDDEN


def _unquoted(text: str) -> str:
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text[:1] in ("'", '"') else text


def _of_lines(line: str, known: set[str], keys: set[str]) -> str:
    """A line of TOML or YAML. A line that is neither a header nor a key with its value may be part of a long text."""
    if not line.strip():
        return line
    if _HEADER.match(line):
        return line if all(_unquoted(part) in keys for part in _NAME.findall(line)) else _HIDDEN
    if assigned := _ASSIGNED.match(line):
        start, key, sign, value = assigned.groups()
        if not (_unquoted(key) in keys or all(part in keys for part in key.split("."))):
            return _HIDDEN
        return start + key + sign + _of_value(value, known, keys)
    dash, sign, value = line.partition("- ")
    return dash + sign + _of_value(value, known, keys) if sign and not dash.strip() else _HIDDEN


def _of_value(value: str, known: set[str], keys: set[str]) -> str:
    plain = value.strip()
    if not plain or plain in known or plain.strip("'\"") in known or plain in _WORDS:
        return value
    if plain[0] in "[{\"'":
        return " " + _of_json(plain, known, keys)
    return f" {_HIDDEN}"


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


# Puts back servers that `import --move` took out of a client's file. Plans only; `applying` writes. A file that no
# other program changed gets its exact bytes back, whatever the order of moves and of connecting. In a file that
# changed since, each server is put back separately, and everything else stays.


@dataclass(frozen=True)
class _State:
    """A file while it is being restored."""

    text: str = field(repr=False)
    restored: tuple[str, ...] = ()
    is_exact: bool = True


def restoring(client: ClientProgram, machine: Machine, backups: Backups, path: Path, name: str) -> FileChange | None:
    """The change that puts back all servers moved out of a file, and removes our entry, if it has one."""
    pending = backups.moves(client.name, path)
    place = _place(client, machine, path)
    if not pending:
        return None
    if place.leads_out:
        raise CannotConnect(f"{path} was not changed. It is a link that leads out of {place.project}.")
    exists = os.path.lexists(path)
    file = file_at(client, place) if exists else FoundFile(client, place, b"", {})
    if file.problem:
        raise CannotConnect(f"{path} was not changed. {file.problem}.")
    try:
        state = _restored(_State(file.text), client, place, machine, pending, backups, name)
    except (CannotEdit, UnreadableText) as error:
        raise CannotConnect(f"{path} was not changed. {error}.") from None
    content = file.content if exists else None
    change = FileChange(client, place, name, content, state.text, {}, restored=state.restored)
    return replace(change, is_exact=state.is_exact)


def _place(client: ClientProgram, machine: Machine, path: Path) -> FilePlace:
    """The place of a file: a known one, or that of a project other than the current folder."""
    main = client.known_files[0]
    known = next((one for one in places(client, machine) if one.path == path), None)
    return known or FilePlace(path, main.kind, main.servers)


def _restored(
    state: _State,
    client: ClientProgram,
    place: FilePlace,
    machine: Machine,
    pending: list[Backup],
    backups: Backups,
    name: str,
) -> _State:
    """Exact steps while there are any; then removes our entry, then undoes the newest move by itself."""
    is_connected = True
    while pending:
        exact = next((one for one in pending if one.after == digest(state.text.encode())), None)
        before = _content(exact, backups) if exact is not None else None
        if exact is not None and before is not None:
            state = replace(state, text=before, restored=(*state.restored, *exact.moved))
            pending = [one for one in pending if one is not exact]
            continue
        found = _without_ours(state, client, place, machine, name, backups) if is_connected else None
        if found is not None:
            state, is_connected = found, False
            continue
        is_connected = False
        state = _by_entry(state, pending[0], client, place, machine, backups)
        pending = pending[1:]
    found = _without_ours(state, client, place, machine, name, backups)
    return found or state


def _content(backup: Backup, backups: Backups) -> str | None:
    try:
        content = backups.content(backup)
    except OSError:
        return None
    return None if content is None else content.decode("utf-8")


def _read(text: str, client: ClientProgram, place: FilePlace) -> FoundFile:
    document = parsed(text, place.kind) if text.strip() else {}
    return FoundFile(client, place, text.encode(), document if isinstance(document, dict) else {})


def _without_ours(
    state: _State, client: ClientProgram, place: FilePlace, machine: Machine, name: str, backups: Backups
) -> _State | None:
    """The file without our entry; None if it has none."""
    text = disconnected_text(_read(state.text, client, place), machine, name)
    if text is None:
        return None
    change = exact_undo(FileChange(client, place, name, state.text.encode(), text, {}), backups)
    return replace(state, text=change.text)


def _by_entry(
    state: _State, backup: Backup, client: ClientProgram, place: FilePlace, machine: Machine, backups: Backups
) -> _State:
    before = _content(backup, backups)
    if before is None:
        raise CannotEdit(f"The copy from before {', '.join(backup.moved)} moved is gone")
    there = {
        (one.at, one.name): one
        for one in listing(_read(state.text, client, place), machine.folder, all_projects=True).entries
    }
    text, restored = state.text, []
    for one in listing(_read(before, client, place), machine.folder, all_projects=True).entries:
        if one.name in backup.moved:
            changed = _put_back(text, one, there.get((one.at, one.name)), client, place)
            restored += [one.name] if changed != text else []
            text = changed
    return _State(text, (*state.restored, *restored), is_exact=False)


def _with_listed(text: str, kind: FileKind, entry: ListedEntry) -> str:
    there = parsed(text, kind) or {}
    for key in entry.at:
        there = there.get(key) or {}
    if kind is FileKind.YAML and not there:
        # As a block list, so that more items can follow: items cannot be added to non-empty brackets.
        return with_value(text, kind, entry.at, [entry.value])
    return with_item(text, kind, entry.at, entry.value)


def _put_back(text: str, entry: ListedEntry, there: ListedEntry | None, client: ClientProgram, place: FilePlace) -> str:
    """The text with one server as it was. A server that was added back in the meantime keeps its settings."""
    kind = place.kind
    if there is None:
        if entry.index is not None:
            return _with_listed(text, kind, entry)
        return with_value(text, kind, entry.at, entry.value)
    how = client.switch_off
    if how is SwitchOff.EXCLUDED and there.is_off and not entry.is_off:
        mcp = parsed(text, kind).get("mcp")
        names = mcp.get("excluded") if isinstance(mcp, dict) else None
        rest = [one for one in names if one != entry.name] if isinstance(names, list) else []
        excluded = ("mcp", "excluded")
        return with_value(text, kind, excluded, rest) if rest else without_value(text, kind, excluded)
    key = {SwitchOff.DISABLED: "disabled", SwitchOff.ENABLED: "enabled"}.get(how)
    if key is None or entry.index is not None or not isinstance(entry.value, Mapping):
        return text
    value: Any = entry.value.get(key)
    path = (*entry.at, key)
    return without_value(text, kind, path) if value is None else with_value(text, kind, path, value)
