"""Plans an import: which entries of clients' files are imported under which names, and why others are not.

Pure: turns files that were read into a plan and edited texts. Called by the command, which shows, asks, stores and
writes.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.documents import ListedEntry, listing
from mcp_optimizer.config.clients.entries import EntryOrigin, TranslatedEntry, translated
from mcp_optimizer.config.clients.finding import ANY_FILE, FoundFile, Machine
from mcp_optimizer.config.clients.literal_secrets import SecretsOfEntry
from mcp_optimizer.config.known_clients.program import KeyPath
from mcp_optimizer.config.serverfile.state_holders import kept_running, why_kept_running
from mcp_optimizer.config.serverfile.variables import secrets_used
from mcp_optimizer.config.textfiles.editing import with_value
from mcp_optimizer.config.textfiles.kinds import FileKind

_LONGEST_NAME = 200
_REFERENCE = "${secret:"


_OF_A_CHILD = ("command", "args", "env", "envFile", "cwd")
_OF_AN_ADDRESS = ("headers", "bearer_token_env_var", "env_http_headers", "auth", "oauth")
"""The keys that tell servers apart, and accounts of one server."""


class ImportOutcome(StrEnum):
    """What happens to an entry."""

    TAKEN = "taken"
    SKIPPED = "skipped"
    """The entry is fine, but not needed."""
    REFUSED = "refused"
    """It cannot be used here."""


@dataclass(frozen=True)
class PlannedEntry:
    """An entry of a client's file, and what happens to it."""

    file: FoundFile
    listed: ListedEntry
    outcome: ImportOutcome
    name: str
    """Its name in our file."""
    reason: str = ""
    notes: tuple[str, ...] = ()
    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets written out in the entry, by the names under which they would be stored."""
    with_references: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The entry with references to those secrets."""
    left: tuple[str, ...] = ()
    """Where the entry has something that looks like a secret but cannot be stored."""
    is_there: bool = False
    """Whether our file has it, now or after the import, so that the client no longer needs it."""


@dataclass(frozen=True)
class ImportPlan:
    """What an import would do."""

    entries: tuple[PlannedEntry, ...] = ()
    files: tuple[FoundFile, ...] = ()
    notes: tuple[tuple[Path, str], ...] = ()
    """Notes about whole files."""

    @property
    def taken(self) -> tuple[PlannedEntry, ...]:
        return tuple(entry for entry in self.entries if entry.outcome is ImportOutcome.TAKEN)


@dataclass(frozen=True)
class WantedServers:
    """Which entries a user wants."""

    servers: Collection[str] = ()
    """Their names; all servers if empty."""
    all_projects: bool = False
    from_folder: bool = False
    """Whether to include entries from files in the current folder. A cloned repository may bring such files, and they
    decide what runs, so they count only if the user names the file."""


def planned(
    files: Sequence[FoundFile], existing: Mapping[str, Any], machine: Machine, wanted: WantedServers
) -> ImportPlan:
    """The plan for these files, given the entries in our file."""
    there = dict(existing)
    entries: list[PlannedEntry] = []
    notes: list[tuple[Path, str]] = []
    for file in files:
        if file.problem:
            notes.append((file.place.path, file.problem))
            continue
        found = listing(file, machine.folder, all_projects=wanted.all_projects)
        notes += [(file.place.path, note) for note in found.notes]
        for listed in found.entries:
            if wanted.servers and listed.name not in wanted.servers:
                continue
            entry = _planned(file, listed, there, machine, wanted)
            entries.append(entry)
            if entry.outcome is ImportOutcome.TAKEN:
                there[entry.name] = entry.entry
    return ImportPlan(tuple(entries), tuple(files), tuple(notes))


def _planned(
    file: FoundFile, listed: ListedEntry, there: Mapping[str, Any], machine: Machine, wanted: WantedServers
) -> PlannedEntry:
    found = translated(listed.name, listed.value, _origin(file, listed, machine), machine.environment)
    plan = PlannedEntry(file, listed, ImportOutcome.TAKEN, listed.name, notes=found.notes)
    is_off = found.is_off or listed.is_off
    if found.is_gateway:
        return replace(plan, outcome=ImportOutcome.SKIPPED, reason="it is mcp-optimizer itself", notes=())
    is_of_folder = file.place.project not in (None, machine.home)
    if is_of_folder and not wanted.from_folder:
        name = shlex.quote(str(file.place.path))
        reason = (
            f"the folder brings it, and says what it runs. Look at the file; to take it: mcp-optimizer import {name}"
        )
        return replace(plan, outcome=ImportOutcome.SKIPPED, reason=reason, notes=())
    # A project's file may ask for editors' inputs; any other secret is the user's own.
    if is_of_folder and (own := [name for name in secrets_used(found.entry) if not name.startswith("input:")]):
        reason = f"the folder says where your secret {min(own)!r} goes; if that is right, add the server yourself"
        return replace(plan, outcome=ImportOutcome.REFUSED, reason=reason, notes=())
    if is_off and not wanted.servers:
        reason = "it is switched off; name it with --servers to take it over"
        return replace(plan, outcome=ImportOutcome.SKIPPED, reason=reason, notes=())
    if problem := found.refused or _problem_of_name(listed.name):
        return replace(plan, outcome=ImportOutcome.REFUSED, reason=problem)
    if same := next((name for name, entry in there.items() if is_same(found.entry, entry)), None):
        reason = "it is there already" if same == listed.name else f"it is there already, as {same!r}"
        return replace(plan, outcome=ImportOutcome.SKIPPED, name=same, reason=reason, notes=(), is_there=True)
    name = _free_name(listed.name, file.client.name, there)
    if name != listed.name:
        plan = replace(plan, name=name, notes=(f"renamed: {listed.name!r} is another server", *plan.notes))
    return _taken(plan, found, is_off=is_off)


def _taken(plan: PlannedEntry, found: TranslatedEntry, *, is_off: bool) -> PlannedEntry:
    if why := why_kept_running(found.entry):
        plan = replace(plan, notes=(*plan.notes, why))
    entry = kept_running(found.entry) | ({"disabled": True} if is_off else {})
    secrets = SecretsOfEntry(plan.name, entry)
    references, left = secrets.entry, tuple(dict.fromkeys(secrets.left))
    return replace(plan, entry=entry, secrets=secrets.values, with_references=references, left=left, is_there=True)


def beside_stored(entry: PlannedEntry, stored: Mapping[str, str]) -> PlannedEntry:
    """The entry with names for its secrets under which no other value is stored."""
    secrets = SecretsOfEntry(entry.name, entry.entry, stored)
    return replace(entry, secrets=secrets.values, with_references=secrets.entry)


def _origin(file: FoundFile, listed: ListedEntry, machine: Machine) -> EntryOrigin:
    if listed.project is not None:
        return EntryOrigin(file.client.reading, machine.home, listed.project, is_project=True)
    # Only for a server file is it known what paths are relative to.
    folder = file.place.path.parent if file.client is ANY_FILE else None
    return EntryOrigin(file.client.reading, machine.home, folder)


def _problem_of_name(name: str) -> str:
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        return f"its name cannot be used: it must have 1 to {_LONGEST_NAME} printable characters"
    return ""


def _free_name(name: str, client: str, there: Mapping[str, Any]) -> str:
    candidates = [name, f"{name}-{client}", *(f"{name}-{client}-{number}" for number in range(2, len(there) + 3))]
    return next(candidate for candidate in candidates if candidate not in there)


def is_same(entry: Mapping[str, Any], other: Any) -> bool:
    """Whether two entries are one server with one account: started or reached in the same way."""
    if not isinstance(other, dict):
        return False
    keys = _OF_A_CHILD
    if (address := entry.get("url")) is not None:
        if not _alike(address, _url(other)):
            return False
        keys = _OF_AN_ADDRESS
    return all(_alike(entry.get(key) or None, other.get(key) or None) for key in keys)


def _url(entry: Mapping[str, Any]) -> Any:
    return entry.get("url") or entry.get("httpUrl") or entry.get("serverUrl")


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal; a reference to a stored secret equals any value in its place."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, str) and isinstance(other, str) and _REFERENCE in one + other:
        before = one.partition(_REFERENCE)[0] if _REFERENCE in one else other.partition(_REFERENCE)[0]
        return one.startswith(before) and other.startswith(before)
    return bool(one == other)


def with_entries(text: str, servers: KeyPath, entries: Sequence[PlannedEntry], *, stored: bool) -> str:
    """The text of our server file with these entries. `stored`: with references to secrets."""
    for one in entries:
        entry = one.with_references if stored else one.entry
        text = with_value(text, FileKind.JSON, (*servers, one.name), dict(entry))
    return text
