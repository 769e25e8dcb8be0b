"""Edits the server file: adds and removes servers, switches servers and tools. Comments and all other text stay.

The edits are pure, from text to text; `change_file` applies one to a file. A running gateway notices by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mcp_optimizer.config.textfiles.editing import CannotEdit, with_value, without_value
from mcp_optimizer.config.textfiles.kinds import LARGEST, FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed
from mcp_optimizer.config.textfiles.writing import FileChanged, replace_file
from mcp_optimizer.config.trusted_files import carry_over
from mcp_optimizer.errors import ConfigurationError, listed, quoted
from mcp_optimizer.runtime.local_files import NotRegularFile, read_regular

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
