"""Reads the server files that MCP clients use, and turns them into specs.

`mcpServers` (Claude Desktop, Cursor, Cline, Gemini CLI ...) and `servers` (VS Code), JSON with comments and trailing
commas, and variables, which `variables` replaces. An unreadable file is an error; an unusable entry is a spec with a
`problem`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.upstream.itself import SAME_FILE, starts_itself
from mcp_optimizer.upstream.selection import ALL, ToolSelection
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.variables import (
    LookUp,
    SecretValues,
    Unusable,
    Variables,
    expanded,
    input_descriptions,
    nothing_stored,
    secrets_used,
)

_TRANSPORT_NAMES = {
    "stdio": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamable_http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "sse": Transport.SSE,
}

_KEYS = frozenset(
    "type transport transportType description command args env cwd url httpUrl serverUrl headers timeout disabled "
    "enabled tools includeTools enabledTools excludeTools disabledTools".split()
)
_SHOWN = _KEYS - frozenset("args env url httpUrl serverUrl headers description".split())
"""Keys whose values appear in messages, in lists of servers and in the catalog."""
_USED = ("tools", "includeTools", "enabledTools")
_TURNED_OFF = ("excludeTools", "disabledTools")
_ALIKE = 0.8
"""Similarity from which one word counts as a mistyped form of the other."""

_LONGEST_PURPOSE = 300

# A string, or a comment, or a comma followed only by whitespace and comments before a closing bracket. A comment is
# atomic, `(?>`: it ends at its first "*/" and is never extended to a later one.
_JSONC = re.compile(
    r"""("(?:\\.|[^"\\])*")|//[^\n]*|(?>/\*.*?\*/)|,(?=(?:\s|//[^\n]*\n|(?>/\*.*?\*/))*+[}\]])""", re.DOTALL
)

# Existing files give seconds (Cline: at most 3,600) or milliseconds (Gemini CLI: 600,000).
_LONGEST_IN_SECONDS = 3_600


def read_server_file(path: Path, environment: Mapping[str, str], look_up: LookUp = nothing_stored) -> list[ServerSpec]:
    """The servers of a file, in its order. `look_up` finds the secrets that it uses, if any."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(
            f"No server file at {path}. Create one with `mcp-optimizer init`, choose another with --config FILE, "
            "or try --demo."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read the server file {path}: {error}.") from error
    return parse_server_file(text, path, environment, look_up)


def parse_server_file(
    text: str, path: Path, environment: Mapping[str, str], look_up: LookUp = nothing_stored
) -> list[ServerSpec]:
    """The servers in `text`; `path` is for messages and for relative folders."""
    try:
        document = json.loads(_JSONC.sub(_blank_out, text))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{path} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    entries = _entries(document, path)
    names = secrets_used(entries)
    secrets = look_up(names) if names else SecretValues()
    variables = Variables(environment, secrets, input_descriptions(document))
    return [_spec(name, entry, path, variables) for name, entry in entries.items()]


def _blank_out(match: re.Match[str]) -> str:
    """Replaces a comment or comma by blanks, line by line, so that errors show the right position."""
    return match.group(1) or re.sub(r"[^\n]", " ", match.group())


def _entries(document: Any, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ConfigurationError(f'{path} must contain a JSON object with "mcpServers".')
    key = "mcpServers" if "mcpServers" in document else "servers"
    # VS Code's settings.json keeps the servers one level down.
    nested = document.get("mcp")
    found = document.get(key, nested.get("servers") if isinstance(nested, dict) else None)
    if found is None:
        keys = ", ".join(map(repr, document)) or "nothing"
        raise ConfigurationError(f'{path} has no "mcpServers" (or "servers") object; it has {keys}.')
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: {key!r} must be an object of servers by name.")
    return found


def _spec(name: str, entry: Any, path: Path, variables: Variables) -> ServerSpec:
    try:
        return _usable_spec(name, entry, path, variables)
    except Unusable as problem:
        if isinstance(entry, dict) and _is_disabled(entry):
            # A disabled server need not report what it lacks.
            return ServerSpec(name=name, transport=_guess_transport(entry), disabled=True)
        text = f"{problem} (in {path})"
        return ServerSpec(name=name, transport=_guess_transport(entry), problem=text, problem_kind=problem.kind)


def _is_disabled(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("disabled", False)) or entry.get("enabled", True) is False


def _guess_transport(entry: Any) -> Transport:
    return Transport.HTTP if isinstance(entry, dict) and "url" in entry else Transport.STDIO


def _usable_spec(name: str, entry: Any, path: Path, variables: Variables) -> ServerSpec:
    if not isinstance(entry, dict):
        raise Unusable("the entry is not an object")
    _refuse_mistyped(entry)
    _refuse_shown_secrets(entry)
    description = entry.get("description")
    entry = {key: value for key, value in entry.items() if key != "description"}
    secrets = {secret: variables.secrets.values.get(secret, "") for secret in secrets_used(entry)}
    entry = {key: expanded(value, key, variables) for key, value in entry.items()}
    transport, certain = _transport(entry)
    disabled = _is_disabled(entry)
    timeout = _timeout(entry.get("timeout"))
    tools = _tools(entry)
    if transport is Transport.STDIO:
        cwd = _text(entry, "cwd")
        spec = ServerSpec(
            name=name,
            transport=transport,
            description=_purpose(description),
            command=_required(entry, "command"),
            args=tuple(_texts(entry.get("args", []), "args")),
            env=_mapping(entry.get("env", {}), "env"),
            cwd=str((path.parent / Path(cwd).expanduser()).resolve()) if cwd else None,
            timeout=timeout,
            disabled=disabled,
            tools=tools,
            secrets=secrets,
        )
        if starts_itself(spec, path):
            raise Unusable(SAME_FILE)
        return spec
    return ServerSpec(
        name=name,
        transport=transport,
        description=_purpose(description),
        url=_url(entry),
        headers=_mapping(entry.get("headers", {}), "headers"),
        timeout=timeout,
        disabled=disabled,
        tools=tools,
        transport_is_certain=certain,
        secrets=secrets,
    )


def _purpose(description: Any) -> str:
    """What the server is for, in a line. Another program may use the key for something else: then it says nothing."""
    return " ".join(description.split())[:_LONGEST_PURPOSE] if isinstance(description, str) else ""


def _refuse_mistyped(entry: Mapping[str, Any]) -> None:
    """Rejects a key that is almost one of ours. Other clients' own keys are allowed: their files are read
    as they are.
    """
    for key in entry.keys() - _KEYS:
        if meant := get_close_matches(key.lower(), sorted(_KEYS - entry.keys()), n=1, cutoff=_ALIKE):
            raise Unusable(f'"{key}" is not a key of a server; did you mean "{meant[0]}"?')


def _refuse_shown_secrets(entry: Mapping[str, Any]) -> None:
    """Rejects a secret where it would be shown to people, or could not work anyway."""
    for key in _SHOWN & entry.keys():
        if names := secrets_used(entry[key]):
            raise Unusable(f'"{key}" is not kept secret, so it cannot contain the secret {min(names)!r}')


def _transport(entry: Mapping[str, Any]) -> tuple[Transport, bool]:
    """The entry's transport, and whether the entry itself states it."""
    declared = next((entry[key] for key in ("type", "transport", "transportType") if key in entry), None)
    if declared is not None:
        known = _TRANSPORT_NAMES.get(str(declared).lower())
        if known is None:
            raise Unusable(f'unknown "type" {declared!r}; use "stdio", "http" or "sse"')
        return known, True
    if "command" in entry:
        return Transport.STDIO, True
    if "url" in entry or "serverUrl" in entry or "httpUrl" in entry:
        url = _url(entry).partition("?")[0].rstrip("/")
        return (Transport.SSE, True) if url.endswith("/sse") else (Transport.HTTP, "httpUrl" in entry)
    raise Unusable('the entry needs a "command" or a "url"')


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise Unusable(f'"timeout" must be a positive number of seconds, not {value!r}')
    return value / 1000 if value > _LONGEST_IN_SECONDS else float(value)


def _tools(entry: Mapping[str, Any]) -> ToolSelection:
    """Which tools are used. Tools turned off in another client's file are turned off here too."""
    used = _tool_names(entry, _USED)
    return ToolSelection(ALL if used is None else tuple(used), tuple(_tool_names(entry, _TURNED_OFF) or ()))


def _tool_names(entry: Mapping[str, Any], keys: Sequence[str]) -> list[str] | None:
    """The names under some keys; None if none of the keys is there."""
    found: list[str] | None = None
    for key in keys:
        if (value := entry.get(key)) is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise Unusable(f'"{key}" must be a list of tool names')
        found = [*(found or []), *value]
    return found


def _required(entry: Mapping[str, Any], key: str) -> str:
    value = _text(entry, key)
    if not value:
        raise Unusable(f'"{key}" is missing or empty')
    return value


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise Unusable(f'"{key}" must be a string, not {type(value).__name__}')
    return value


def _texts(value: Any, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise Unusable(f'"{key}" must be a list of strings')
    return [str(item) for item in value]


def _mapping(value: Any, key: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float | None) for item in value.values()):
        raise Unusable(f'"{key}" must be an object of strings')
    return {name: _plain(item) for name, item in value.items() if item is not None}


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _url(entry: Mapping[str, Any]) -> str:
    url = _text(entry, "url") or _text(entry, "httpUrl") or _text(entry, "serverUrl")
    if not url.startswith(("http://", "https://")):
        raise Unusable('"url" must start with http:// or https://')
    return url
