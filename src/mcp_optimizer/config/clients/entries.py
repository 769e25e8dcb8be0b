"""Translates one entry of a client's file into one of a server file, and says what was left out and why.

Called by `importing`. `EntryReading` knows what each client's keys mean. Only `serverfile.parser` decides whether the
result can be used. Messages name keys, not values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_optimizer.config.known_clients.entry_reading import EntryReading, has_variable
from mcp_optimizer.config.serverfile.foreign_files import editor_values
from mcp_optimizer.config.serverfile.parser import AS_WRITTEN, ENTRY_KEYS, spec_of
from mcp_optimizer.config.serverfile.self_reference import is_gateway
from mcp_optimizer.config.serverfile.variables import Variables
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.errors import quoted

_MOST_KEYS = 200
_MOST_NAMED = 20
_LONGEST_PROBLEM = 400
_SWITCHES = ("enabled", "disabled")
_HTTP = frozenset("http streamablehttp streamable-http streamable_http".split())
_FOR_LATER = (FailureKind.VARIABLE, FailureKind.UNSTORED)
"""Problems that the user can solve without changing the entry."""


@dataclass(frozen=True)
class EntryOrigin:
    """Where an entry comes from."""

    reading: EntryReading
    """The format of its client's entries."""
    home: Path
    folder: Path | None = None
    """The folder that relative paths start from, if known."""
    is_project: bool = False
    """Whether the entry belongs to a project, whose servers run in its folder."""


@dataclass(frozen=True)
class TranslatedEntry:
    """An entry in our keys, or the reason why there is none."""

    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    """What differs from the original, or is still to be done."""
    refused: str = ""
    is_off: bool = False
    is_gateway: bool = False


def translated(name: str, value: Any, origin: EntryOrigin, environment: Mapping[str, str]) -> TranslatedEntry:
    """A client's entry in our format."""
    is_off = isinstance(value, dict) and (bool(value.get("disabled")) or value.get("enabled") is False)
    try:
        entry, notes = _entry(value, origin)
    except UnusableEntry as problem:
        return TranslatedEntry(refused=str(problem), is_off=is_off)
    # The path only stands in for a file: paths are absolute by now, as far as possible.
    spec = spec_of(name, dict(entry), origin.home / "mcp.json", Variables(environment))
    if spec.problem and spec.problem_kind not in _FOR_LATER:
        return TranslatedEntry(notes=notes, refused=_plain(spec.problem), is_off=is_off)
    if spec.problem:
        said = _plain(spec.problem)
        notes = (*notes, said.partition("; ")[0] if spec.problem_kind is FailureKind.VARIABLE else said)
    return TranslatedEntry(entry, notes, is_off=is_off, is_gateway=is_gateway(spec))


def _plain(problem: str) -> str:
    """A problem without the file that its message names."""
    return (problem.rpartition(" (in ")[0] or problem)[:_LONGEST_PROBLEM]


def _entry(value: Any, origin: EntryOrigin) -> tuple[dict[str, Any], tuple[str, ...]]:
    if not isinstance(value, dict):
        raise UnusableEntry("the entry is not an object")
    if len(value) > _MOST_KEYS:
        raise UnusableEntry(f"the entry has {len(value):,} keys; at most {_MOST_KEYS} are read")
    reading = origin.reading
    notes = list(_about_variables(value, reading))
    values = editor_values(origin.home, origin.folder if origin.is_project else None)
    kept = {key: item for key, item in value.items() if key in AS_WRITTEN}
    spelt = reading.spelled({key: item for key, item in value.items() if key not in kept}, values)
    entry, left_out = _renamed(reading.shape(spelt | kept), reading)
    entry = _with_type(entry)
    if "timeout" in entry and reading.in_milliseconds:
        entry["timeout"] = _seconds(entry["timeout"])
    entry = _with_paths(entry, origin)
    return entry, (*notes, *left_out)


def _about_variables(value: Mapping[str, Any], reading: EntryReading) -> Iterator[str]:
    if not reading.variables.leaves_braces:
        return
    for key, item in value.items():
        if key not in AS_WRITTEN and has_variable(item):
            yield f"{quoted(key)} has a ${{...}}, which the client leaves as it is and mcp-optimizer replaces"


def _renamed(flat: Mapping[str, Any], reading: EntryReading) -> tuple[dict[str, Any], list[str]]:
    """The entry in our keys, and notes about all other keys."""
    entry: dict[str, Any] = {}
    notes: list[str] = []
    unknown: list[str] = []
    for key, value in flat.items():
        ours = reading.renamed.get(key, key)
        says_nothing = value is None or (ours not in ENTRY_KEYS and value in ({}, [], ""))
        if says_nothing or key in _SWITCHES:
            continue
        if key in reading.left_out and not (key == "trust" and isinstance(value, str)):
            notes.append(f"{quoted(key)} is left out: {reading.left_out[key]}")
        elif ours not in ENTRY_KEYS:
            unknown.append(quoted(key))
        elif ours in entry:
            notes.append(f"{quoted(key)} is left out: another key says the same")
        else:
            entry[ours] = value
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        notes.append(f"not understood, and left out: {', '.join(unknown[:_MOST_NAMED])}{more}")
    return entry, notes


def _with_type(entry: dict[str, Any]) -> dict[str, Any]:
    """One spelling of each transport, and none where it is obvious."""
    declared = entry.get("type")
    if not isinstance(declared, str):
        return entry
    rest = {key: value for key, value in entry.items() if key != "type"}
    if declared.lower() in ("stdio", "local"):
        return rest if "command" in rest else entry
    return {"type": "http" if declared.lower() in _HTTP else declared, **rest}


def _seconds(value: Any) -> Any:
    # A user who writes less than 1,000 must mean seconds: no one wants a timeout under a second.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1000 <= value < 10**12:
        return value
    return value // 1000 if value % 1000 == 0 else value / 1000


def _with_paths(entry: dict[str, Any], origin: EntryOrigin) -> dict[str, Any]:
    """The entry with absolute paths, if the folder they are relative to is known."""
    if origin.folder is None:
        return entry
    if origin.is_project and "command" in entry:
        entry = {**entry, "cwd": entry.get("cwd") or str(origin.folder)}
    for key in ("cwd", "envFile"):
        path = entry.get(key)
        if isinstance(path, str) and not path.startswith(("~", "$")) and "\0" not in path:
            entry = {**entry, key: str(origin.folder / path)}
    return entry
