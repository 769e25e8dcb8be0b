"""Claude Code: one file with the servers of the user and of each project, and settings with permissions beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    SEARCHED,
    EntryReading,
    EntryWriting,
    OurGateway,
    OwnCommands,
    value_at,
)
from mcp_optimizer.config.known_clients.program import (
    Base,
    ClientPermission,
    ClientProgram,
    FilePermissions,
    FileSigns,
    KnownFile,
    PermissionKind,
    PermissionReading,
    ProjectEntry,
    before_signs,
    has_signs,
    listed_texts,
    plain_name,
)
from mcp_optimizer.config.textfiles.kinds import FileKind

_FOLDER_VARIABLE = "CLAUDE_CONFIG_DIR"


def _project_entries(document: Any) -> Iterator[ProjectEntry]:
    projects = value_at(document, ("projects",))
    for path, project in projects.items() if isinstance(projects, dict) else ():
        off = value_at(project, ("disabledMcpServers",))
        servers = value_at(project, ("mcpServers",))
        for name, value in servers.items() if isinstance(servers, dict) else ():
            is_off = isinstance(off, list) and name in off
            yield ProjectEntry(path, name, value, ("projects", path, "mcpServers", name), is_off)


def _adding(name: str, entry: Mapping[str, Any], _gateway: OurGateway) -> list[str]:
    return ["claude", "mcp", "add-json", "--scope", "user", name, json.dumps(entry)]


def _settings_files(home: Path, environment: Mapping[str, str], platform: str, folder: Path) -> list[Path]:
    named = environment.get(_FOLDER_VARIABLE, "")
    own = home / (named.removeprefix("~/") if named else ".claude")
    managed = {
        "darwin": Path("/Library/Application Support/ClaudeCode"),
        "win32": Path("C:/Program Files/ClaudeCode"),
    }.get(platform, Path("/etc/claude-code"))
    return [
        managed / "managed-settings.json",
        *(
            beside / name
            for beside in dict.fromkeys((own, folder / ".claude"))
            for name in ("settings.json", "settings.local.json")
        ),
    ]


def _of_settings(document: Mapping[str, Any], servers: Sequence[str], file: str) -> FilePermissions:
    """`permissions`: `mcp__server`, `mcp__server__*` and `mcp__server__tool`."""
    said = document.get("permissions")
    permissions = said if isinstance(said, dict) else {}
    found = [
        one
        for kind in (PermissionKind.DENY, PermissionKind.ASK)
        for text in listed_texts(permissions, kind)
        if text.startswith("mcp__")
        for server in servers
        for one in _about(text, server, kind, file)
    ]
    allowed = sum(
        any(True for server in servers for _ in _about(text, server, PermissionKind.ALLOW, file))
        for text in listed_texts(permissions, PermissionKind.ALLOW)
    )
    return FilePermissions(tuple(found), allowed)


def _about(text: str, name: str, kind: PermissionKind, file: str) -> Iterator[ClientPermission]:
    """A permission for the server, if the text is one. Claude Code writes `_` for what names may not contain."""
    server = "mcp__" + plain_name(name)
    rest = text.removeprefix(server)
    reason = f"Claude Code's {file} says {kind}"
    if has_signs(text[: len(server) + 1]):
        # It matches several servers: take the widest meaning.
        if before_signs(text).startswith(server) or server.startswith(before_signs(text)):
            tool = "*" + text.rpartition("*")[2].lstrip("_").replace("_", "?") if text.count("__") > 1 else "*"
            yield ClientPermission(kind, name, tool, reason)
    elif text.startswith(server) and rest in ("", "__*", "__"):
        yield ClientPermission(kind, name, "*", reason)
    elif text.startswith(server) and rest.startswith("__"):
        # The character replaced by `_` is unknown, so match any.
        yield ClientPermission(kind, name, rest[2:].replace("_", "?").replace("[", "[[]"), reason)


CLAUDE_CODE = ClientProgram(
    "claude-code",
    "Claude Code",
    (KnownFile(Base.HOME, ".claude.json", folder_variable=_FOLDER_VARIABLE),),
    (".mcp.json",),
    sign=".claude",
    project_entries=_project_entries,
    signs=FileSigns(lambda document, kind: kind is FileKind.JSON and isinstance(document.get("projects"), dict)),
    reading=EntryReading(left_out={**LEFT_OUT, "alwaysLoad": SEARCHED}, in_milliseconds=True),
    writing=EntryWriting(types=("stdio", "http"), reference="${%s}", switches={"alwaysLoad": True}),
    commands=OwnCommands(_adding, ("claude", "mcp", "remove", "--scope", "user")),
    permissions=PermissionReading(of_file=_of_settings, other_files=_settings_files),
)
