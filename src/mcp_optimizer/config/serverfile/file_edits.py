"""Edits the server file: adds and removes servers, switches servers and tools, corrects clear errors. Comments and all
other text stay.

The edits are pure, from text to text; `change_file` applies one to a file. A running gateway notices by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

from mcp_optimizer.config.serverfile.variables import scheme_for
from mcp_optimizer.config.textfiles.editing import CannotEdit, with_value, without_value
from mcp_optimizer.config.textfiles.kinds import LARGEST, FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed
from mcp_optimizer.config.textfiles.writing import FileChanged, replace_file
from mcp_optimizer.config.trusted_files import carry_over
from mcp_optimizer.errors import ConfigurationError, listed, quoted
from mcp_optimizer.runtime.local_files import NotRegularFile, read_regular
from mcp_optimizer.runtime.patterns import regex

# Corrections of a server file that need no guess: the error has only one right form, and cannot be intended. A
# correction never quotes a value: it may be a secret.

_ADDRESS = regex(r"(?:(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*|localhost|127\.0\.0\.1)(?::\d+)?(?:/\S*)?", re.I)
"""A host that has dots or is this machine, with an optional port and path."""
_TYPES = ("stdio", "http", "sse", "streamable-http", "streamable_http", "streamablehttp", "local")
_ALIKE = 0.75
_URLS = ("url", "httpUrl", "serverUrl")
_KINDS = ("type", "transport", "transportType")
_TERMINAL = ("-it", "-ti")


@dataclass(frozen=True)
class EntryFix:
    """One edit of a server file: replaces the value at a path of keys, or removes it if there is no new one."""

    server: str
    path: tuple[str, ...]
    says: str
    value: Any = None

    @property
    def removes(self) -> bool:
        return self.value is None


def entry_fixes(document: Any, themselves: Collection[str]) -> list[EntryFix]:
    """The corrections of a document. `themselves`: entries that start this gateway with this file, without end."""
    found: list[EntryFix] = []
    for name, entry, path in _entries(document):
        if name in themselves:
            found.append(EntryFix(name, path, "remove the entry: it is this gateway, which would start itself"))
        elif isinstance(entry, dict):
            found += _of_entry(name, entry, path)
    return found


def _entries(document: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for keys in (("mcpServers",), ("servers",), ("mcp", "servers")):
        there = document
        for key in keys:
            there = there.get(key) if isinstance(there, dict) else None
        if isinstance(there, dict):
            yield from ((name, entry, (*keys, name)) for name, entry in there.items())
            return


def _of_entry(name: str, entry: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[EntryFix]:
    for key in _URLS:
        url = entry.get(key)
        if isinstance(url, str) and _ADDRESS.fullmatch(url):
            scheme = scheme_for(url)
            yield EntryFix(name, (*path, key), f'put {scheme} in front of its "{key}"', scheme + url)
    for key in _KINDS:
        kind = entry.get(key)
        is_wrong = isinstance(kind, str) and kind.lower() not in _TYPES
        if is_wrong and (meant := get_close_matches(str(kind).lower(), _TYPES[:3], n=1, cutoff=_ALIKE)):
            yield EntryFix(name, (*path, key), f'set its "{key}" to "{meant[0]}"', meant[0])
    command, args = entry.get("command"), entry.get("args")
    is_container = isinstance(command, str) and PurePath(command).name in ("docker", "podman")
    if is_container and isinstance(args, list) and args[:1] == ["run"] and args[1:2] and args[1] in _TERMINAL:
        changed = ["run", "-i", *args[2:]]
        yield EntryFix(name, (*path, "args"), f'take "-t" out of its "{args[1]}": a server has no terminal', changed)


EMPTY = '{\n  "mcpServers": {}\n}\n'
_USED = ("tools", "includeTools", "enabledTools")
_TURNED_OFF = ("disabledTools", "excludeTools")

Edit = Callable[[str], str]


def change_file(path: Path, edit: Edit, *, private: bool = False) -> bool:
    """Apply an edit to a server file, creating the file if needed. Returns whether anything changed.

    `private`: from now on, only its owner can read it, because the values written may be secret.
    """
    before = file_bytes(path)
    text = EMPTY if before is None else _decoded(before, path)
    try:
        after = edit(text)
        if before is not None and after == text:
            return False
        if before is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, after, expected=before, private=private)
        carry_over(path, before, after.encode())
    except (UnreadableText, CannotEdit, FileChanged) as error:
        raise ConfigurationError(f"Cannot change {path}: {str(error).rstrip('.')}.") from None
    except OSError as error:
        raise ConfigurationError(f"Cannot write {path}: {error.strerror or type(error).__name__}.") from None
    return True


def file_text(path: Path) -> str:
    """The text of a server file; an empty server file if there is none."""
    found = file_bytes(path)
    return EMPTY if found is None else _decoded(found, path)


def file_bytes(path: Path) -> bytes | None:
    try:
        return read_regular(path, LARGEST[FileKind.JSON])
    except FileNotFoundError:
        return None
    except NotRegularFile as error:
        raise ConfigurationError(f"Cannot change {path}: {error}.") from None
    except OSError as error:
        raise ConfigurationError(f"Cannot read {path}: {error.strerror or type(error).__name__}.") from None


def _decoded(found: bytes, path: Path) -> str:
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not text in UTF-8.") from None


def entries_in(text: str) -> dict[str, Any]:
    """The entries by name, as written."""
    document = _document(text)
    for key in _place(document):
        document = document.get(key, {}) if isinstance(document, dict) else {}
    if not isinstance(document, dict):
        raise ConfigurationError("The server file has no object of servers by name.")
    return document


def with_entry(text: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with one more server. A name that is taken is an error."""
    if name in entries_in(text):
        raise ConfigurationError(
            f"There is already a server {quoted(name)}. Choose another name with --name, or remove that one first."
        )
    return with_value(text, FileKind.JSON, [*_place(_document(text)), name], dict(entry))


def without_entry(text: str, name: str) -> str:
    _entry(text, name)
    return without_value(text, FileKind.JSON, [*_place(_document(text)), name])


def with_server_on(text: str, name: str, is_on: bool) -> str:
    """The text with a server switched on or off."""
    entry, path = _entry(text, name), [*_place(_document(text)), name]
    if is_on:
        if "disabled" in entry:
            text = without_value(text, FileKind.JSON, [*path, "disabled"])
        return with_value(text, FileKind.JSON, [*path, "enabled"], True) if entry.get("enabled") is False else text
    if bool(entry.get("disabled")) or entry.get("enabled") is False:
        return text
    if "enabled" in entry:
        return with_value(text, FileKind.JSON, [*path, "enabled"], False)
    return with_value(text, FileKind.JSON, [*path, "disabled"], True)


def with_tool_on(text: str, name: str, tool: str, is_on: bool) -> str:
    """The text with a tool of a server switched on or off. `tool` may be a pattern, like those in the file."""
    entry, path = _entry(text, name), [*_place(_document(text)), name]
    if not is_on:
        key = next((key for key in _TURNED_OFF if isinstance(entry.get(key), list)), _TURNED_OFF[0])
        off = _tool_names(entry, key)
        return text if tool in off else with_value(text, FileKind.JSON, [*path, key], [*off, tool])
    for key in _TURNED_OFF:
        off = _tool_names(entry, key)
        kept = [one for one in off if one != tool]
        if pattern := next((one for one in kept if fnmatchcase(tool, one)), None):
            raise ConfigurationError(
                f'{quoted(pattern)} in "{key}" of {quoted(name)} turns {quoted(tool)} off, and other tools with it: '
                "change that in the server file."
            )
        if kept != off:
            at = [*path, key]
            text = with_value(text, FileKind.JSON, at, kept) if kept else without_value(text, FileKind.JSON, at)
    there = [key for key in _USED if isinstance(entry.get(key), list)]
    if there and not any(fnmatchcase(tool, one) for key in there for one in _tool_names(entry, key)):
        text = with_value(text, FileKind.JSON, [*path, there[0]], [*_tool_names(entry, there[0]), tool])
    return text


def _tool_names(entry: Mapping[str, Any], key: str) -> list[str]:
    found = entry.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigurationError(f'"{key}" in the server file must be a list of names of tools.')
    return found


def _entry(text: str, name: str) -> Mapping[str, Any]:
    entries = entries_in(text)
    if name not in entries:
        raise ConfigurationError(f"There is no server {quoted(name)}. Servers: {listed(list(entries)) or 'none'}.")
    entry = entries[name]
    if not isinstance(entry, dict):
        raise ConfigurationError(f"The entry of {quoted(name)} is not an object; correct it in the server file.")
    return entry


def _document(text: str) -> Any:
    try:
        document = parsed(text, FileKind.JSON)
    except UnreadableText as error:
        raise ConfigurationError(f"The server file is not valid JSON: {str(error).rstrip('.')}.") from None
    if not isinstance(document, dict):
        raise ConfigurationError('The server file must contain a JSON object with "mcpServers".')
    return document


def _place(document: Mapping[str, Any]) -> Sequence[str]:
    """The keys that lead to the servers, as `parser` looks for them. A file without any gets `mcpServers`."""
    if "mcpServers" in document:
        return ("mcpServers",)
    if "servers" in document:
        return ("servers",)
    nested = document.get("mcp")
    return ("mcp", "servers") if isinstance(nested, dict) and "servers" in nested else ("mcpServers",)
