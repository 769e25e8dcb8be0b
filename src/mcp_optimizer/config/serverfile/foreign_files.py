"""Recognises files of other programs: those that are read as they are, and those that have to be imported.

Called where a server file is read. Pure: looks at a path and a text. `known_clients` knows each program's format.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.config.known_clients.program import ClientProgram
from mcp_optimizer.config.known_clients.table import CLIENTS


def project_of(path: Path, home: Path) -> Path | None:
    """The project's folder, if this file is in an editor's folder in a project. The same folder in a user's home
    belongs to no project.
    """
    folder = path.absolute().parent
    for client in CLIENTS.values():
        parts = Path(client.in_projects[0]).parent.parts if client.is_of_project else ()
        if parts and folder.parts[-len(parts) :] == parts:
            project = folder.parents[len(parts) - 1]
            return None if project == home else project
    return None


def editor_values(home: Path, project: Path | None) -> dict[str, str]:
    """The editors' variables whose values are known, for a user's file or for a project's."""
    values = {"userHome": str(home), "pathSeparator": os.sep, "/": os.sep}
    if project is not None:
        values |= {"workspaceFolder": str(project), "workspaceFolderBasename": project.name}
    return values


def has_bare_variables(path: Path) -> bool:
    """Whether `$VAR` is a variable too, as in Gemini CLI's settings."""
    return any(
        client.reading.variables.is_bare and path.absolute().parts[-len(parts) :] == parts
        for client in CLIENTS.values()
        for parts in (Path(client.known_files[0].path).parts,)
    )


def foreign_text(text: str) -> str:
    """The kind of a text that is not JSON; empty if unknown."""
    for client in CLIENTS.values():
        if client.signs is not None and client.signs.line is not None and client.signs.line.search(text):
            return f"{_a_file(client)} ({client.kind})"
    return ""


def foreign_document(document: Mapping[str, Any]) -> str:
    """The kind of a JSON document whose servers are in another form than in server files; empty if their form is the
    usual one or unknown.
    """
    if isinstance(document.get("mcpServers"), dict):
        return ""
    for client in CLIENTS.values():
        if client.signs is not None and client.signs.is_foreign is not None and client.signs.is_foreign(document):
            return _a_file(client)
    return ""


def _a_file(client: ClientProgram) -> str:
    return f"{'an' if client.title[0].lower() in 'aeio' else 'a'} {client.title} file"


def import_instead(path: Path, kind: str) -> str:
    """The error about a file that has to be imported."""
    return (
        f"{path} is {kind}, which is not read as a server file. Take its servers over with "
        f"`mcp-optimizer import {shlex.quote(str(path))}`."
    )
