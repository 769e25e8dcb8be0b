"""Plans an import: translates the entries of clients' files into entries of ours, takes secrets out of them, and says
why others are not imported.

Pure: turns files that were read into a plan and edited texts. Called by the command, which shows, asks, stores and
writes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.files import ANY_FILE, FoundFile, ListedEntry, Machine, listing
from mcp_optimizer.config.known_clients.entry_spelling import EntryReading, has_variable
from mcp_optimizer.config.known_clients.program import KeyPath
from mcp_optimizer.config.serverfile.foreign_files import editor_values
from mcp_optimizer.config.serverfile.parser import AS_WRITTEN, ENTRY_KEYS, spec_of
from mcp_optimizer.config.serverfile.recognised_servers import is_gateway, kept_running, why_kept_running
from mcp_optimizer.config.serverfile.redaction import has_random_part, holds_secret, is_named_secret
from mcp_optimizer.config.serverfile.variables import Variables, secrets_used
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.config.textfiles.editing import with_value
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.errors import quoted
from mcp_optimizer.runtime.patterns import regex

# Finds secrets that are written out in an entry, and replaces them with references. Recognises secrets by names
# (`API_TOKEN`, `Authorization`, `--api-key`), also those inside values, by passwords in URLs, and by known forms of
# tokens.

_SCHEME = regex(r"(?:Bearer|Basic|Token|ApiKey|Digest)\s+", re.IGNORECASE)
_PARAMETER = regex(r"(?<=[?&])([^=&#]+)=([^&#]+)")
_PASSWORD = regex(r"(?<=://)([^/?#\s@:]*:)([^/?#\s@]+)@")
_VARIABLE = regex(r"[A-Za-z_]\w*")
_REPLACED = regex(r"\$\{([^{}]*)\}")
_NO_SECRETS = frozenset("type description cwd envFile timeout disabled enabled tools trust".split())
"""Keys whose values are names, paths and switches."""
_UNUSUAL = regex(r"[^\w.-]+")
_LONGEST_PART = 90


class SecretsOfEntry:
    """Takes the secrets out of one entry. `entry` has references, `values` their values by name.

    `left` lists the places with something that looks like a secret but cannot be stored: next to a variable, which
    would no longer be replaced; in a shell command; in a number; in the path of an address.
    """

    def __init__(self, server: str, entry: Mapping[str, Any], stored: Mapping[str, str] | None = None) -> None:
        """`stored`: existing secrets, whose values must not be overwritten."""
        self._stored_before = stored or {}
        self._server = _UNUSUAL.sub("_", server)[:_LONGEST_PART]
        self.values: dict[str, str] = {}
        self.left: list[str] = []
        self.entry = {key: self._of(key, value) for key, value in entry.items()}

    def _of(self, key: str, value: Any) -> Any:
        if key in ("env", "headers", "auth", "oauth") and isinstance(value, dict):
            return {name: self._referred(name, item, f"{key}.{name}") for name, item in value.items()}
        if key == "args" and isinstance(value, list):
            return [self._argument(str(value[at - 1]) if at else "", item, at) for at, item in enumerate(value)]
        if key == "url" and isinstance(value, str):
            return self._address(value)
        if key not in _NO_SECRETS:
            self._note_left(key, value, key)
        return value

    def _address(self, url: str) -> str:
        if has_random_part(url):
            self.left.append("url")
        return _PARAMETER.sub(self._parameter, _PASSWORD.sub(self._password, url))

    def _parameter(self, match: re.Match[str]) -> str:
        return f"{match.group(1)}={self._referred(match.group(1), match.group(2), 'url')}"

    def _password(self, match: re.Match[str]) -> str:
        if has_variable(match.group(2)):
            return match.group()
        return f"{match.group(1)}${{secret:{self._stored('password', match.group(2))}}}@"

    def _argument(self, before: str, value: Any, at: int) -> Any:
        place = f"args[{at}]"
        if not isinstance(value, str):
            return value
        option, equals, given = value.partition("=")
        if value.startswith("-") and equals:
            return f"{option}={self._referred(option.lstrip('-'), given, place)}"
        is_value = before.startswith("-") and "=" not in before and not value.startswith("-")
        name = before.lstrip("-") if is_value else "argument"
        if _VARIABLE.fullmatch(option) and equals and not is_named_secret(name, value):
            # The form used by `docker run -e TOKEN=...`.
            return f"{option}={self._referred(option, given, place)}"
        return self._referred(name, value, place)

    def _referred(self, name: str, value: Any, place: str) -> Any:
        """The value, or a reference to it if it is a secret."""
        if not isinstance(value, str) or has_variable(value):
            self._note_left(name, value, place)
            return value
        if not holds_secret(name, value):
            return value
        scheme = found.group() if (found := _SCHEME.match(value)) else ""
        return f"{scheme}${{secret:{self._stored(name, value[len(scheme) :])}}}"

    def _note_left(self, name: str, value: Any, place: str) -> None:
        if isinstance(value, dict | list):
            text = json.dumps(value)
        else:
            text = "" if value is None or isinstance(value, bool) else str(value)
        # Of a variable, only its default is written out.
        if holds_secret(name, _REPLACED.sub(lambda found: found.group(1).partition(":-")[2], text)):
            self.left.append(place)

    def _stored(self, name: str, value: str) -> str:
        base = wanted = f"{self._server}.{_UNUSUAL.sub('_', name)[:_LONGEST_PART]}"
        number = 1
        while self._stored_before.get(wanted, value) != value or self.values.setdefault(wanted, value) != value:
            number += 1
            wanted = f"{base}-{number}"
        return wanted


# Translates one entry of a client's file into one of a server file, and says what was left out and why.
# `EntryReading` knows what each client's keys mean. Only `serverfile.parser` decides whether the result can be used.
# Messages name keys, not values.

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
    same = next((name for name, entry in there.items() if is_same(found.entry, entry)), None)
    if is_off and not wanted.servers:
        reason = "it is there already" if same else "it is switched off; name it with --servers to take it over"
        return replace(plan, outcome=ImportOutcome.SKIPPED, reason=reason, notes=())
    if problem := found.refused or _problem_of_name(listed.name):
        return replace(plan, outcome=ImportOutcome.REFUSED, reason=problem)
    if same:
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
