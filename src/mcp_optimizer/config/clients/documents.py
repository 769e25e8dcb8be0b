"""The entries in a client's file: where they are, which are switched off elsewhere in it, and whose project they are.

Pure: a document in, uninterpreted entries out. `entries` interprets each. Called by `importing`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.finding import FoundFile
from mcp_optimizer.config.known_clients.entry_reading import value_at
from mcp_optimizer.config.known_clients.program import KeyPath, SwitchOff

MOST_SERVERS = 500
"""Maximum servers read from one part of a file."""


@dataclass(frozen=True)
class ListedEntry:
    """An entry as written in a file."""

    name: str
    value: Any = field(repr=False)
    at: KeyPath
    """The keys that lead to it; for one in a list, those that lead to the list."""
    index: int | None = None
    """Its position in a list."""
    project: Path | None = None
    """The folder that it applies to, if only one."""
    is_off: bool = False
    """Whether something outside the entry switches it off."""


@dataclass(frozen=True)
class FileListing:
    """The entries of a file, and notes about it."""

    entries: tuple[ListedEntry, ...] = ()
    notes: tuple[str, ...] = ()


def listing(found: FoundFile, folder: Path, *, all_projects: bool) -> FileListing:
    """The entries of a file; of those for projects, only those for `folder`, unless all are wanted."""
    notes: list[str] = []
    entries: list[ListedEntry] = []
    for at in found.client.servers_in(found.document, found.place):
        servers = value_at(found.document, at)
        if servers is None:
            continue
        if not isinstance(servers, dict | list):
            notes.append(f'"{".".join(at)}" is not an object of servers by name')
            continue
        if len(servers) > MOST_SERVERS:
            notes.append(f"it has {len(servers):,} servers; only the first {MOST_SERVERS:,} are read")
        entries += _entries(servers, at, found)
    of_projects, others = _of_projects(found, folder, all_projects)
    entries += of_projects
    if others:
        notes.append(f"{others} more in other projects; take them over with --all-projects")
    return FileListing(tuple(entries), tuple(notes))


def _entries(servers: Mapping[str, Any] | list[Any], at: KeyPath, found: FoundFile) -> list[ListedEntry]:
    project = found.place.project
    if isinstance(servers, list):
        return [
            ListedEntry(_name_in_list(entry, number), entry, at, number, project)
            for number, entry in enumerate(islice(servers, MOST_SERVERS))
        ]
    return [
        ListedEntry(str(name), entry, (*at, str(name)), project=project, is_off=_is_excluded(str(name), found))
        for name, entry in islice(servers.items(), MOST_SERVERS)
    ]


def _name_in_list(entry: Any, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"server-{number + 1}"


def _is_excluded(name: str, found: FoundFile) -> bool:
    """Whether lists elsewhere in the file exclude a server."""
    if found.client.switch_off is not SwitchOff.EXCLUDED:
        return False
    excluded = _names(found.document, ("mcp", "excluded")) | _names(found.document, ("excludeMCPServers",))
    allowed = _names(found.document, ("mcp", "allowed")) | _names(found.document, ("allowMCPServers",))
    return name in excluded or (bool(allowed) and name not in allowed)


def _names(document: Any, at: KeyPath) -> set[str]:
    found = value_at(document, at)
    return {item for item in found if isinstance(item, str)} if isinstance(found, list) else set()


def _of_projects(found: FoundFile, folder: Path, all_projects: bool) -> tuple[list[ListedEntry], int]:
    """The project entries of this folder or of all, and how many remain."""
    taken: list[ListedEntry] = []
    others = 0
    known = found.client.project_entries
    for one in known(found.document) if known is not None else ():
        is_wanted = all_projects or os.path.normpath(one.folder) == os.path.normpath(folder)
        if is_wanted and len(taken) < MOST_SERVERS:
            taken.append(ListedEntry(one.name, one.value, one.at, project=Path(one.folder), is_off=one.is_off))
        else:
            others += 1
    return taken, others
