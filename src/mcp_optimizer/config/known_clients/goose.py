"""Goose: a YAML file of extensions, some of which are built into Goose."""

from __future__ import annotations

import re
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    ELSEWHERE,
    LEFT_OUT,
    NO_VARIABLES,
    SHOWN,
    Entry,
    EntryReading,
    EntryWriting,
    OurGateway,
    variable_name,
    with_environment,
    with_names,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FileSigns, KnownFile, SwitchOff
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, texts
from mcp_optimizer.config.textfiles.kinds import FileKind

_SECONDS_OF_A_CALL = 300


def _shape(entry: Entry) -> Entry:
    """`cmd`, `envs`, `uri`, and variables whose values Goose keeps in the keyring."""
    kind = entry.get("type")
    if kind not in ("stdio", "sse", "streamable_http"):
        raise UnusableEntry("it is a part of Goose, which only Goose can start")
    entry = with_names(entry, {"cmd": "command", "envs": "env", "uri": "url"})
    entry.pop("name", None)
    if not entry.get("available_tools"):
        entry.pop("available_tools", None)
    if kept := entry.pop("env_keys", None):
        entry = with_environment(entry, [variable_name(one, "env_keys") for one in texts(kept, "env_keys")])
    if kind != "stdio" and not entry.get("env"):
        entry.pop("env", None)
    return entry


def _local(gateway: OurGateway, name: str) -> dict[str, Any]:
    started = {"type": "stdio", "cmd": gateway.command, "args": list(gateway.args)}
    return {"name": name, "enabled": True, **started, "envs": {}, "timeout": _SECONDS_OF_A_CALL}


def _remote(gateway: OurGateway, name: str, headers: dict[str, str]) -> dict[str, Any]:
    entry = {"name": name, "enabled": True, "type": "streamable_http", "uri": gateway.url}
    # Goose replaces only variables that the entry names.
    known = {"env_keys": [gateway.key_variable], "headers": headers} if headers else {}
    return {**entry, **known, "timeout": _SECONDS_OF_A_CALL}


GOOSE = ClientProgram(
    "goose",
    "Goose",
    (
        KnownFile(
            Base.CONFIG,
            "goose/config.yaml",
            (("extensions",),),
            FileKind.YAML,
            on_windows="Block/goose/config/config.yaml",
        ),
    ),
    switch_off=SwitchOff.ENABLED,
    signs=FileSigns(
        lambda document, kind: kind is FileKind.YAML and "extensions" in document,
        re.compile(r"^extensions:[ \t]*(?:#.*)?$", re.MULTILINE),
    ),
    reading=EntryReading(NO_VARIABLES, _shape, left_out={**LEFT_OUT, "bundled": ELSEWHERE, "display_name": SHOWN}),
    writing=EntryWriting(url_key="uri", reference="${%s}", local=_local, remote=_remote),
)
