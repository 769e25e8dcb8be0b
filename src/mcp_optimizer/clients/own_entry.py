"""Our own entry as each client spells it: a command to start, or the address of a gateway that runs.

Pure. Called by `connecting`. A key is never written: only the name of a variable, where the client can refer to one.
Variables that the server file uses are passed on, where a client does not do that anyway.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_optimizer.upstream.itself import is_gateway
from mcp_optimizer.upstream.spec import ServerSpec, Transport

DEFAULT_NAME = "mcp-optimizer"


class NotForThisClient(ValueError):
    """The client cannot have such an entry. The message says what to do instead."""


@dataclass(frozen=True)
class OurGateway:
    """How a client reaches the gateway: by a command, or by a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    key_variable: str = ""
    """The environment variable of the client that holds its key."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that the server file uses."""


_TYPED: Mapping[str, tuple[str, str]] = {
    "claude-code": ("stdio", "http"),
    "vscode": ("stdio", "http"),
    "vscode-insiders": ("stdio", "http"),
    "copilot-cli": ("local", "http"),
    "cline": ("stdio", "streamableHttp"),
    "roo": ("stdio", "streamable-http"),
    "continue": ("stdio", "streamable-http"),
    "kimi": ("stdio", "http"),
    "vibe": ("stdio", "streamable-http"),
    "openhands": ("stdio", "http"),
}
"""What `type` says for a command and for a URL, where a client wants to be told."""

_TYPE_KEYS: Mapping[str, str] = dict.fromkeys(("kimi", "vibe", "openhands"), "transport")
"""What `type` is called, where it has another name."""

IN_LISTS = frozenset({"continue", "vibe"})
"""Clients whose entries are items of a list, with their names inside."""

_SWITCHES: Mapping[str, dict[str, Any]] = {
    "claude-code": {"alwaysLoad": True},
    "qwen": {"alwaysLoadTools": True},
    # Without it, a turn begins without servers that need more than about a second.
    "codex": {"required": True, "omit_tools_from": ["deferred"]},
    "copilot-cli": {"tools": ["*"], "deferTools": "never"},
}
"""What keeps our few tools in view: behind a client's own search, a search would have to be searched for."""

_FEW_VARIABLES = frozenset({"claude-desktop", "vibe", "openhands"})
"""Clients that start servers with a handful of variables, and cannot refer to others."""

_KEY_VARIABLES: Mapping[str, str] = {
    "codex": "bearer_token_env_var",
    "kimi": "bearerTokenEnvVar",
    "vibe": "api_key_env",
}
"""The key of an entry that names the variable with a token."""

_URL_KEYS: Mapping[str, str] = {"gemini": "httpUrl", "qwen": "httpUrl", "windsurf": "serverUrl", "goose": "uri"}

_REFERENCES: Mapping[str, str] = {
    "claude-code": "${%s}",
    "copilot-cli": "${%s}",
    "cursor": "${env:%s}",
    "windsurf": "${env:%s}",
    "roo": "${env:%s}",
    "gemini": "$%s",
    "qwen": "$%s",
    "opencode": "{env:%s}",
    "goose": "${%s}",
    "kiro": "${%s}",
    "amp": "${%s}",
}
"""How a header refers to a variable of the environment."""


def entry_for(client: str, gateway: OurGateway, name: str) -> dict[str, Any]:
    """The entry in the client's spelling."""
    return _remote(client, gateway, name) if gateway.url else _local(client, gateway, name)


def _local(client: str, gateway: OurGateway, name: str) -> dict[str, Any]:
    if client == "opencode":
        return {"type": "local", "command": [gateway.command, *gateway.args], "enabled": True}
    if client == "goose":
        started = {"type": "stdio", "cmd": gateway.command, "args": list(gateway.args)}
        return {"name": name, "enabled": True, **started, "envs": {}, "timeout": 300}
    entry = _start(client, name, 0)
    # Vibe splits a line into words, as a shell does.
    command: Any = [gateway.command] if client == "vibe" else gateway.command
    entry |= {"command": command, "args": list(gateway.args)}
    return entry | _passed_on(client, gateway.variables) | _SWITCHES.get(client, {})


def _passed_on(client: str, variables: tuple[str, ...]) -> dict[str, Any]:
    """Variables of the environment for a server, in the way of a client that would keep them to itself."""
    if client == "codex":
        return _if(variables, env_vars=list(variables))
    if client in ("gemini", "qwen"):
        return _if(variables, env={name: _REFERENCES[client] % name for name in variables})
    return {"env": {}} if client == "zed" else {}


def not_passed_on(client: str, gateway: OurGateway) -> tuple[str, ...]:
    """Variables that the server file uses and this client keeps to itself."""
    return gateway.variables if client in _FEW_VARIABLES and not gateway.url else ()


def _start(client: str, name: str, transport: int) -> dict[str, Any]:
    """How an entry begins. `transport`: 0 for a command, 1 for a URL."""
    entry: dict[str, Any] = {"name": name} if client in IN_LISTS else {}
    if client in _TYPED:
        entry[_TYPE_KEYS.get(client, "type")] = _TYPED[client][transport]
    if client == "zed":
        entry["source"] = "custom"
    return entry


def _remote(client: str, gateway: OurGateway, name: str) -> dict[str, Any]:
    if client == "claude-desktop":
        raise NotForThisClient("Claude Desktop starts its servers with a command; leave out --http")
    if client in _KEY_VARIABLES:
        entry = {**_start(client, name, 1), "url": gateway.url} | _SWITCHES.get(client, {})
        return entry | _if(gateway.key_variable, **{_KEY_VARIABLES[client]: gateway.key_variable})
    headers = _headers(client, gateway)
    if client == "opencode":
        return {"type": "remote", "url": gateway.url, "enabled": True, **_if(headers, headers=headers)}
    if client == "goose":
        entry = {"name": name, "enabled": True, "type": "streamable_http", "uri": gateway.url}
        # Goose replaces only variables that the entry names.
        known = {"env_keys": [gateway.key_variable], "headers": headers} if headers else {}
        return {**entry, **known, "timeout": 300}
    start = _start(client, name, 1)
    start[_URL_KEYS.get(client, "url")] = gateway.url
    return start | _if(headers, headers=headers) | _SWITCHES.get(client, {})


def _headers(client: str, gateway: OurGateway) -> dict[str, str]:
    if not gateway.key_variable:
        return {}
    if client not in _REFERENCES:
        raise NotForThisClient(
            "it cannot read a key from a variable, and a key is not written into its file; connect it without --http"
        )
    return {"Authorization": "Bearer " + _REFERENCES[client] % gateway.key_variable}


def _if(condition: object, **values: Any) -> dict[str, Any]:
    return values if condition else {}


def is_ours(name: str, entry: Any) -> bool:
    """Whether an entry of any client is a gateway: by its command, or by its name if it has only a URL."""
    if not isinstance(entry, Mapping):
        return False
    words = _words(entry.get("command", entry.get("cmd"))) + _words(entry.get("args"))
    if words:
        return is_gateway(ServerSpec(name=name, transport=Transport.STDIO, command=words[0], args=tuple(words[1:])))
    url = next((entry[key] for key in ("url", "httpUrl", "serverUrl", "uri") if isinstance(entry.get(key), str)), "")
    return bool(url) and is_gateway(ServerSpec(name=name, transport=Transport.HTTP, url=url))


def _words(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        # Zed's earlier form.
        return _words(value.get("path")) + _words(value.get("args"))
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def is_temporary(program: str) -> bool:
    """Whether a program lies where uvx or `pipx run` keep it for a while."""
    parts = program.replace(os.sep, "/").lower()
    return any(
        sign in parts for sign in ("/archive-v0/", "/uv/cache/", "/.cache/uv/", "/pipx/.cache/", "/.cache/pipx/")
    )
