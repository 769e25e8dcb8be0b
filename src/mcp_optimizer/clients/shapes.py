"""Entries that some clients write in a form of their own, made flat: keys of ours, or names that `dialects` knows.

Pure. Each function takes an entry whose variables are in our spelling and returns a new one; what it does not use
stays, so that it is named later. Raises UnusableEntry for what only that client can start.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from mcp_optimizer.upstream.entry_values import UnusableEntry, mapping, text_of, texts

Entry = dict[str, Any]

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _moved(entry: Entry, names: dict[str, str]) -> Entry:
    """The entry with other names for some keys, unless the new name is there already."""
    return {key if names.get(key) in entry else names.get(key, key): value for key, value in entry.items()}


def of_zed(entry: Entry) -> Entry:
    """`{"source": "custom", "command": "x"}`, or `{"command": {"path": "x", "args": [], "env": {}}}`."""
    entry = dict(entry)
    source = entry.pop("source", "custom")
    if source == "extension" or (not entry.keys() & {"command", "url"} and "settings" in entry):
        raise UnusableEntry("it is an extension of Zed, which only Zed can start")
    if source != "custom":
        entry["source"] = source
    if isinstance(command := entry.get("command"), dict):
        inner = _moved(command, {"path": "command"})
        return {**{key: value for key, value in entry.items() if key != "command"}, **inner}
    return entry


def of_codex(entry: Entry) -> Entry:
    """Codex's own keys for headers, variables that are passed on, and the time of a call."""
    if "bearer_token" in entry:
        raise UnusableEntry('"bearer_token" is refused by Codex too; use "bearer_token_env_var"')
    entry = _moved(entry, {"tool_timeout_sec": "timeout", "http_headers": "headers"})
    if passed := entry.pop("env_vars", None):
        if not isinstance(passed, list):
            raise UnusableEntry('"env_vars" must be a list of names')
        names = [_name(one.get("name") if isinstance(one, dict) else one, "env_vars") for one in passed]
        # Codex leaves out what is not set. Here that is a problem with a name, not a server without its token.
        entry["env"] = {name: f"${{{name}}}" for name in names} | mapping(entry.get("env") or {}, "env")
    return entry


def _name(value: Any, where: str) -> str:
    """The name of an environment variable. What is none is not quoted: it may be a secret in the wrong place."""
    if not _VARIABLE.fullmatch(text_of(value, where)):
        raise UnusableEntry(f'"{where}" must be a list of names of environment variables')
    return str(value)


def of_gemini(entry: Entry) -> Entry:
    """`httpUrl` is streamable HTTP, and `url` without a type is SSE."""
    if "tcp" in entry:
        raise UnusableEntry('"tcp" is a WebSocket, which is not supported; use a "url"')
    if "httpUrl" in entry:
        return {"type": "http"} | {key: value for key, value in entry.items() if key not in ("type", "url")}
    return {"type": "sse", **entry} if "url" in entry and "command" not in entry else dict(entry)


def of_vibe(entry: Entry) -> Entry:
    """An item of a list. `command` is a line or a list of words; headers are in `auth`, earlier beside it."""
    entry = {key: value for key, value in entry.items() if key != "name"}
    entry = _moved(entry, {"tool_timeout_sec": "timeout"})
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
        value = text_of(form, "api_key_format").replace("{token}", f"${{{_name(variable, 'api_key_env')}}}")
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


def of_opencode(entry: Entry) -> Entry:
    """`command` is a list; `remote` tries streamable HTTP, then SSE, as we do for a URL without a type."""
    entry = _moved(entry, {"environment": "env"})
    if entry.get("type") == "remote":
        del entry["type"]
    if isinstance(command := entry.get("command"), list):
        words = texts(command, "command")
        if not words:
            raise UnusableEntry('"command" is empty')
        entry |= {"command": words[0], "args": words[1:]}
    return entry


def of_goose(entry: Entry) -> Entry:
    """`cmd`, `envs`, `uri`, and variables whose values Goose keeps in the keyring."""
    kind = entry.get("type")
    if kind not in ("stdio", "sse", "streamable_http"):
        raise UnusableEntry("it is a part of Goose, which only Goose can start")
    entry = _moved(entry, {"cmd": "command", "envs": "env", "uri": "url"})
    entry.pop("name", None)
    if not entry.get("available_tools"):
        entry.pop("available_tools", None)
    if kept := entry.pop("env_keys", None):
        names = [_name(one, "env_keys") for one in texts(kept, "env_keys")]
        entry["env"] = {name: f"${{{name}}}" for name in names} | mapping(entry.get("env") or {}, "env")
    if kind != "stdio" and not entry.get("env"):
        entry.pop("env", None)
    return entry


def of_continue(entry: Entry) -> Entry:
    """An item of a list, with its headers in `requestOptions`; earlier with everything in `transport`."""
    entry = {key: value for key, value in entry.items() if key != "name"}
    if isinstance(transport := entry.get("transport"), dict):
        entry = {key: value for key, value in entry.items() if key != "transport"} | transport
    if isinstance(options := entry.get("requestOptions"), dict):
        entry = {key: value for key, value in entry.items() if key != "requestOptions"}
        headers = mapping(options.get("headers") or {}, "requestOptions.headers")
        entry |= {"headers": headers} if headers else {}
        entry |= {f"requestOptions.{key}": value for key, value in options.items() if key != "headers"}
    if (key := entry.get("apiKey")) is not None:
        entry = {name: value for name, value in entry.items() if name != "apiKey"}
        headers = mapping(entry.get("headers") or {}, "headers")
        entry["headers"] = {"Authorization": f"Bearer {text_of(key, 'apiKey')}"} | headers
    return entry
