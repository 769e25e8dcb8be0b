"""Codex: a TOML file, with the variables, tools and approvals of a server in its table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    ASKING,
    LEFT_OUT,
    NO_VARIABLES,
    SEARCHED,
    STARTING,
    Entry,
    EntryReading,
    EntryWriting,
    OwnCommands,
    variable_name,
    with_environment,
    with_names,
)
from mcp_optimizer.config.known_clients.program import (
    MOST,
    Base,
    ClientPermission,
    ClientProgram,
    FileSigns,
    KnownFile,
    PermissionKind,
    PermissionReading,
    SwitchOff,
    literal,
)
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.config.textfiles.kinds import FileKind


def _shape(entry: Entry) -> Entry:
    """Translates Codex's keys for headers, forwarded variables, and the time of a call."""
    if "bearer_token" in entry:
        raise UnusableEntry('"bearer_token" is refused by Codex too; use "bearer_token_env_var"')
    entry = with_names(entry, {"tool_timeout_sec": "timeout", "http_headers": "headers"})
    if passed := entry.pop("env_vars", None):
        if not isinstance(passed, list):
            raise UnusableEntry('"env_vars" must be a list of names')
        names = [variable_name(one.get("name") if isinstance(one, dict) else one, "env_vars") for one in passed]
        entry = with_environment(entry, names)
    return entry


def _passed_on(variables: tuple[str, ...]) -> dict[str, Any]:
    return {"env_vars": list(variables)} if variables else {}


def _of_entry(server: str, value: Mapping[str, Any]) -> Iterator[ClientPermission]:
    reason = "Codex asked about it"
    tools = value.get("tools")
    modes = {
        name: tool.get("approval_mode")
        for name, tool in (list(tools.items())[:MOST] if isinstance(tools, dict) else ())
        if isinstance(name, str) and isinstance(tool, dict)
    }
    asks_all = value.get("default_tools_approval_mode") == "prompt"
    for name, mode in modes.items():
        if mode == "prompt":
            yield ClientPermission(PermissionKind.ASK, server, literal(name), reason)
        elif mode is not None and asks_all:
            yield ClientPermission(PermissionKind.ALLOW, server, literal(name), reason)
    if asks_all:
        yield ClientPermission(PermissionKind.ASK, server, "*", reason)


def _wrote(document: Mapping[str, Any], kind: FileKind) -> bool:
    return kind is FileKind.TOML and not isinstance(document.get("mcp_servers"), list)


CODEX = ClientProgram(
    "codex",
    "Codex",
    (KnownFile(Base.HOME, ".codex/config.toml", (("mcp_servers",),), FileKind.TOML, "CODEX_HOME"),),
    (".codex/config.toml",),
    switch_off=SwitchOff.ENABLED,
    signs=FileSigns(_wrote, re.compile(r"^[ \t]*\[mcp_servers[.\]]", re.MULTILINE)),
    reading=EntryReading(
        NO_VARIABLES,
        _shape,
        left_out={
            **LEFT_OUT,
            "startup_timeout_sec": STARTING,
            "startup_timeout_ms": STARTING,
            "default_tools_approval_mode": ASKING,
            "tools": ASKING,
            "required": "a server that fails never stops the others",
            "omit_tools_from": SEARCHED,
        },
    ),
    writing=EntryWriting(
        bearer_key="bearer_token_env_var",
        passed_on=_passed_on,
        # Without `required`, a turn begins without any server that needs more than about a second.
        switches={"required": True, "omit_tools_from": ["deferred"]},
    ),
    # Codex's own command for adding a server writes neither `required` nor the names of variables.
    commands=OwnCommands(removing=("codex", "mcp", "remove")),
    permissions=PermissionReading(_of_entry),
)
