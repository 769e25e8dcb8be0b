"""Recognises files of other programs: those that are read as they are, and those that have to be imported.

Called where a server file is read. Pure: looks at a path and a text. What each program writes is in room `clients`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_EDITOR_FOLDERS = frozenset({".vscode", ".cursor", ".roo"})
"""Folders of editors in a project. The same folder in a user's home belongs to no project."""
_LINES = (
    (re.compile(r"^[ \t]*\[mcp_servers[.\]]", re.MULTILINE), "a Codex file (TOML)"),
    (re.compile(r"^extensions:[ \t]*(?:#.*)?$", re.MULTILINE), "a Goose file (YAML)"),
    (re.compile(r"^mcpServers:[ \t]*(?:#.*)?$", re.MULTILINE), "a Continue file (YAML)"),
)


def project_of(path: Path, home: Path) -> Path | None:
    """The project's folder, if this is a file in an editor's folder in it."""
    folder = path.absolute().parent
    if folder.name == "settings" and folder.parent.name == ".kiro":
        folder = folder.parent
    elif folder.name not in _EDITOR_FOLDERS:
        return None
    return None if folder.parent == home else folder.parent


def editor_values(home: Path, project: Path | None) -> dict[str, str]:
    """The variables of editors that can be known for a user's file, or for a project's."""
    values = {"userHome": str(home), "pathSeparator": os.sep, "/": os.sep}
    if project is not None:
        values |= {"workspaceFolder": str(project), "workspaceFolderBasename": project.name}
    return values


def has_bare_variables(path: Path) -> bool:
    """Whether `$VAR` is a variable too, as in Gemini CLI's settings."""
    return path.absolute().parent.name == ".gemini" and path.name == "settings.json"


def foreign_text(text: str) -> str:
    """What kind of file a text is that is not JSON; empty if it is none that is known."""
    return next((kind for pattern, kind in _LINES if pattern.search(text)), "")


def foreign_document(document: Mapping[str, Any]) -> str:
    """What kind of file a JSON document is, if its servers are not written as in server files; empty if they are, or
    if it is none that is known.
    """
    if isinstance(document.get("mcpServers"), dict):
        return ""
    if isinstance(document.get("context_servers"), dict):
        return "a Zed file"
    if isinstance(document.get("amp.mcpServers"), dict):
        return "an Amp file"
    listed = document.get("mcpServers")
    if "modelContextProtocolServers" in _object(document, "experimental") or (isinstance(listed, list) and listed):
        return "a Continue file"
    entries = _object(document, "mcp")
    if any(_is_of_opencode(entry) for entry in (*entries.values(), *_object(entries, "servers").values())):
        return "an opencode file"
    return ""


def _is_of_opencode(entry: Any) -> bool:
    is_remote = isinstance(entry, dict) and entry.get("type") == "remote"
    return is_remote or (isinstance(entry, dict) and isinstance(entry.get("command"), list))


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def import_instead(path: Path, kind: str) -> str:
    """The error about a file that has to be imported."""
    return (
        f"{path} is {kind}, which is not read as a server file. Take its servers over with "
        f"`mcp-optimizer import {shlex.quote(str(path))}`."
    )
