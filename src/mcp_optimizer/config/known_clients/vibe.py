"""Mistral Vibe: a TOML file with a list of servers, each with its login in a table of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    NO_VARIABLES,
    STARTING,
    Entry,
    EntryReading,
    EntryWriting,
    OurGateway,
    variable_name,
    with_names,
)
from mcp_optimizer.config.known_clients.program import Base, ClientProgram, FileSigns, KnownFile
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, text_of, texts
from mcp_optimizer.config.textfiles.kinds import FileKind


def _shape(entry: Entry) -> Entry:
    """An item of a list. `command` is a line or a list of words; headers are in `auth`, earlier beside it."""
    entry = {key: value for key, value in entry.items() if key != "name"}
    entry = with_names(entry, {"tool_timeout_sec": "timeout"})
    auth = entry.pop("auth", None)
    if isinstance(auth, dict) and auth.get("type") == "oauth":
        names = {"client_id": "clientId", "redirect_port": "callbackPort"}
        entry["oauth"] = {names.get(key, key): value for key, value in auth.items() if key != "type"}
    elif isinstance(auth, dict):
        entry |= {key: value for key, value in auth.items() if key != "type"}
    elif auth is not None:
        raise UnusableEntry('"auth" is not a table')
    if variable := entry.pop("api_key_env", None):
        header, form = entry.pop("api_key_header", "Authorization"), entry.pop("api_key_format", "Bearer {token}")
        name = variable_name(variable, "api_key_env")
        value = text_of(form, "api_key_format").replace("{token}", f"${{{name}}}")
        headers = mapping(entry.get("headers") or {}, "headers")
        entry["headers"] = {text_of(header, "api_key_header"): value} | headers
    if not entry.get("disabled_tools"):
        entry.pop("disabled_tools", None)
    command = entry.get("command")
    words = texts(command, "command") if isinstance(command, list) else _split(command) if command is not None else []
    if words:
        more = texts(entry.get("args") or [], "args")
        entry |= {"command": words[0], "args": [*words[1:], *more]}
    return entry


def _split(command: Any) -> list[str]:
    try:
        return shlex.split(text_of(command, "command"))
    except ValueError:
        raise UnusableEntry('"command" has a quotation mark without its end') from None


def _local(gateway: OurGateway, name: str) -> dict[str, Any]:
    # A line is split into words, as in a shell.
    return {"name": name, "transport": "stdio", "command": [gateway.command], "args": list(gateway.args)}


def _wrote(document: Mapping[str, Any], kind: FileKind) -> bool:
    return kind is FileKind.TOML and isinstance(document.get("mcp_servers"), list)


# Its own switch only hides tools: it would still start the server. It sends `mcp`, the name of every program made with
# the Python SDK, so its habits, such as reading the structure instead of the text, cannot be recognised.
VIBE = ClientProgram(
    "vibe",
    "Mistral Vibe",
    (KnownFile(Base.HOME, ".vibe/config.toml", (("mcp_servers",),), FileKind.TOML, "VIBE_HOME"),),
    (".vibe/config.toml",),
    signs=FileSigns(_wrote, re.compile(r"^[ \t]*\[\[mcp_servers\]\]", re.MULTILINE)),
    reading=EntryReading(
        NO_VARIABLES,
        _shape,
        left_out={
            **LEFT_OUT,
            "startup_timeout_sec": STARTING,
            "prompt": "it is a hint that only Vibe adds to descriptions",
            "sampling_enabled": "what servers may ask of models is up to your client",
        },
    ),
    writing=EntryWriting(
        types=("stdio", "streamable-http"),
        type_key="transport",
        in_list=True,
        bearer_key="api_key_env",
        keeps_variables=True,
        local=_local,
    ),
)
