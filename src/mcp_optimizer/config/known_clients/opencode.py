"""opencode: `command` is a list, `{env:X}` a variable, and later versions keep servers one level deeper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    STARTING,
    Entry,
    EntryReading,
    EntryWriting,
    OurGateway,
    VariableSpelling,
    value_at,
    with_names,
)
from mcp_optimizer.config.known_clients.program import (
    MOST,
    Base,
    ClientPermission,
    ClientProgram,
    FilePermissions,
    FileSigns,
    KeyPath,
    KnownFile,
    PermissionKind,
    PermissionReading,
    SwitchOff,
    before_signs,
    plain_name,
)
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, texts
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.runtime.patterns import regex

_EARLIER = ("mcp",)
_LATER = ("mcp", "servers")
_VARIABLE = regex(r"\{(env|file):([^}]*)\}")


def _chosen(document: Any) -> tuple[KeyPath, ...]:
    """The servers' keys; a server may be named "servers", too."""
    nested = value_at(document, _LATER)
    if isinstance(nested, dict) and not nested.keys() & {"type", "command", "url"}:
        return (_LATER,)
    return (_EARLIER,) if isinstance(value_at(document, _EARLIER), dict) else ()


def _replaced(text: str, _values: Mapping[str, str], where: str) -> str:
    def ours(match: re.Match[str]) -> str:
        if match.group(1) == "file":
            raise UnusableEntry(
                f'"{where}" takes a value from a file, which only opencode does; store it with `mcp-optimizer secret '
                "set NAME` and write ${secret:NAME}"
            )
        return f"${{{match.group(2).strip()}}}"

    return _VARIABLE.sub(ours, text)


def _shape(entry: Entry) -> Entry:
    """`remote` tries streamable HTTP, then SSE, as we do for a URL without a type."""
    entry = with_names(entry, {"environment": "env"})
    if entry.get("type") == "remote":
        del entry["type"]
    if isinstance(command := entry.get("command"), list):
        words = texts(command, "command")
        if not words:
            raise UnusableEntry('"command" is empty')
        entry |= {"command": words[0], "args": words[1:]}
    return entry


def _local(gateway: OurGateway, _name: str) -> dict[str, Any]:
    return {"type": "local", "command": [gateway.command, *gateway.args], "enabled": True}


def _remote(gateway: OurGateway, _name: str, headers: dict[str, str]) -> dict[str, Any]:
    entry = {"type": "remote", "url": gateway.url, "enabled": True}
    return entry | ({"headers": headers} if headers else {})


def _permissions(document: Mapping[str, Any], servers: Sequence[str], file: str) -> FilePermissions:
    """`permission` and, in earlier versions, `tools`: patterns of `server_tool`; the last match counts."""
    permission = document.get("permission")
    if isinstance(permission, str):
        permission = {"*": permission}
    tools = document.get("tools")
    said = [
        (pattern, PermissionKind.DENY)
        for pattern, is_on in (tools.items() if isinstance(tools, dict) else ())
        if is_on is False
    ]
    given = list(permission.items())[:MOST] if isinstance(permission, dict) else []
    said += [(str(pattern), one) for pattern, value in given if (one := _strictest(value)) is not None]
    reason = f"opencode's {file} limits it"
    found: list[ClientPermission] = []
    for number, (pattern, one) in enumerate(said):
        if one is PermissionKind.ALLOW and any(later is not PermissionKind.ALLOW for _, later in said[number:]):
            continue
        found += [
            ClientPermission(one, name, tool if one is PermissionKind.ALLOW else tool.replace("_", "?"), reason)
            for name in servers
            if (tool := _tool(pattern, name)) is not None
        ]
    return FilePermissions(tuple(found))


def _tool(pattern: str, name: str) -> str | None:
    """The tools of a server that a pattern covers, if any."""
    server = plain_name(name) + "_"
    if pattern.startswith(server):
        return pattern.removeprefix(server) or "*"
    if "*" in pattern and server.startswith(before_signs(pattern)):
        return "*" + pattern.rpartition("*")[2].removeprefix("_")
    return None


def _strictest(value: Any) -> PermissionKind | None:
    """A permission's value; of one that depends on arguments, the strictest."""
    found = list(value.values()) if isinstance(value, dict) else [value]
    return next((kind for kind in PermissionKind if kind.value in found), None)


def _wrote(document: Mapping[str, Any], kind: FileKind) -> bool:
    is_other = "mcpServers" in document or isinstance(document.get("inputs"), list)
    return kind is FileKind.JSON and isinstance(document.get("mcp"), dict) and not is_other


def _is_foreign(document: Mapping[str, Any]) -> bool:
    entries = [value_at(document, place) for place in (_EARLIER, _LATER)]
    return any(
        entry.get("type") == "remote" or isinstance(entry.get("command"), list)
        for servers in entries
        if isinstance(servers, dict)
        for entry in servers.values()
        if isinstance(entry, dict)
    )


OPENCODE = ClientProgram(
    "opencode",
    "opencode",
    (
        KnownFile(Base.CONFIG, "opencode/opencode.json", (_EARLIER, _LATER), file_variable="OPENCODE_CONFIG"),
        KnownFile(Base.CONFIG, "opencode/opencode.jsonc", (_EARLIER, _LATER)),
    ),
    ("opencode.json", "opencode.jsonc"),
    switch_off=SwitchOff.ENABLED,
    chosen=_chosen,
    signs=FileSigns(_wrote, is_foreign=_is_foreign),
    reading=EntryReading(
        VariableSpelling(_replaced, leaves_braces=True),
        _shape,
        left_out={**LEFT_OUT, "timeout": STARTING},
    ),
    writing=EntryWriting(reference="{env:%s}", local=_local, remote=_remote),
    permissions=PermissionReading(of_file=_permissions),
)
