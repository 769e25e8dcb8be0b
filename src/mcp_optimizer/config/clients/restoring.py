"""Puts back servers that `import --move` took out of a client's file. Plans only; `applying` writes.

A file that no other program changed gets its exact bytes back, whatever the order of moves and of connecting. In a file
that changed since, each server is put back separately, and everything else stays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.applying import exact_undo
from mcp_optimizer.config.clients.backups import Backup, Backups, digest
from mcp_optimizer.config.clients.connecting import CannotConnect, FileChange, disconnected_text
from mcp_optimizer.config.clients.documents import ListedEntry, listing
from mcp_optimizer.config.clients.finding import FoundFile, Machine, file_at, places
from mcp_optimizer.config.known_clients.program import ClientProgram, FilePlace, SwitchOff
from mcp_optimizer.config.textfiles.editing import CannotEdit, with_item, with_value, without_value
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed


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
