"""Parses the server files that MCP clients use into specs; a program may pass the same content as a dictionary.

`mcpServers` (Claude Desktop, Cursor, Cline, Gemini CLI ...) and `servers` (VS Code), JSON with comments and trailing
commas, with variables, which `variables` replaces, and files of variables (`envFile`). An unreadable file is an error;
an unusable entry is a spec with a `problem`, and `refuse_unusable` refuses it before it is written. No message quotes a
value: it may be a secret. Starts nothing.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_optimizer.config.serverfile.auth import KEYS_OF_AUTH, configured_headers, login, refuse_login_of_a_child
from mcp_optimizer.config.serverfile.file_edits import EMPTY, with_entry
from mcp_optimizer.config.serverfile.foreign_files import (
    editor_values,
    foreign_document,
    foreign_text,
    has_bare_variables,
    import_instead,
    project_of,
)
from mcp_optimizer.config.serverfile.recognised_servers import NEVER, SAME_FILE, lost_by_a_stop, starts_itself
from mcp_optimizer.config.serverfile.spec import ALL, ServerSpec, Sharing, Start, ToolSelection, Transport
from mcp_optimizer.config.serverfile.variables import (
    LookUp,
    SecretValues,
    Variables,
    expanded,
    input_descriptions,
    kind_of,
    located,
    meant,
    nothing_stored,
    required,
    scheme_for,
    secrets_used,
    text_at,
    with_caller,
)
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, texts
from mcp_optimizer.config.textfiles.kinds import LARGEST, FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, duplicate_keys, parsed
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.pins import TrustMode
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

_LARGEST_ENV_FILE = 64 * 1024
_ENV_LINE = regex(r"(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*(.*)")
_ENV_QUOTED = regex(r"""(?P<quote>["'`])(?P<value>.*)(?P=quote)\s*(?:#.*)?""")
_ENV_COMMENT = regex(r"(?:^|\s)#.*$")


def variables_of(path: Path, where: str) -> dict[str, str]:
    """The variables in a file. `where`: the key that names it, for messages."""
    found: dict[str, str] = {}
    for number, line in enumerate(_env_text(path, where).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (match := _ENV_LINE.fullmatch(line.strip())) is None:
            raise UnusableEntry(f'line {number} of the file of "{where}" is not NAME=VALUE')
        found[match.group(1)] = _env_value(match.group(2))
    return found


def _env_value(written: str) -> str:
    if (quoted := _ENV_QUOTED.fullmatch(written)) is None:
        return _ENV_COMMENT.sub("", written)
    value = quoted["value"]
    return value.replace("\\n", "\n").replace('\\"', '"') if quoted["quote"] == '"' else value


def _env_text(path: Path, where: str) -> str:
    file = f'the file of "{where}"'
    try:
        # Non-blocking: a pipe may have no writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise UnusableEntry(f"{file} is not a file")
            content = opened.read(_LARGEST_ENV_FILE + 1)
    except FileNotFoundError:
        raise UnusableEntry(f"{file} does not exist") from None
    except OSError as error:
        raise UnusableEntry(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_ENV_FILE:
        raise UnusableEntry(f"{file} is larger than {_LARGEST_ENV_FILE // 1024} KB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableEntry(f"{file} is not text") from None


_USED = ("tools", "includeTools", "enabledTools")
_TURNED_OFF = ("excludeTools", "disabledTools")

# Existing files give seconds (Cline: at most 3,600) or milliseconds (Gemini CLI: 600,000).
_LONGEST_IN_SECONDS = 3_600
_LONGEST_TIMEOUT = 10**12


def timeout_of(value: Any) -> float | None:
    """The maximum seconds of a call."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONGEST_TIMEOUT:
        raise UnusableEntry(f'"timeout" must be a positive number of seconds, not {quoted(value)}')
    return value / 1000 if value > _LONGEST_IN_SECONDS else float(value)


def start_of(entry: Mapping[str, Any]) -> Start | None:
    """When it starts."""
    said = entry.get("start")
    if said is None:
        return None
    if said not in list(Start):
        raise UnusableEntry(f'"start" must be one of {", ".join(map(repr, map(str, Start)))}, not {quoted(said)}')
    return Start(said)


def idle_timeout_of(entry: Mapping[str, Any], started_with: Sequence[str] = ()) -> float | None:
    """Seconds without use after which it stops: never, if the words it is `started_with` show that it holds state."""
    said = entry.get("idle_timeout")
    if said is None:
        return math.inf if started_with and lost_by_a_stop(started_with[0], started_with[1:]) else None
    if said == NEVER:
        return math.inf
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said < _LONGEST_TIMEOUT:
        raise UnusableEntry(f'"idle_timeout" must be a positive number of seconds, or "never", not {quoted(said)}')
    return float(said)


def session_of(entry: Mapping[str, Any], started_with: Sequence[str] = ()) -> Sharing:
    """Who shares it: nobody, if the words it is `started_with` show that it holds state."""
    said = entry.get("session")
    if said is None:
        holds = started_with and lost_by_a_stop(started_with[0], started_with[1:])
        return Sharing.OWN if holds else Sharing.SHARED
    if said not in list(Sharing):
        raise UnusableEntry(f'"session" must be {" or ".join(map(repr, map(str, Sharing)))}, not {quoted(said)}')
    return Sharing(said)


def tools_of(entry: Mapping[str, Any]) -> ToolSelection:
    """The tools to use. Tools turned off in another client's file are turned off here too."""
    used = _tool_names(entry, _USED)
    return ToolSelection(ALL if used is None else tuple(used), tuple(_tool_names(entry, _TURNED_OFF) or ()))


def trust_of(entry: Mapping[str, Any]) -> TrustMode | None:
    """What happens when the server's tools change. In Gemini CLI, `trust` is true or false and means something else."""
    said = entry.get("trust")
    if said is None or isinstance(said, bool):
        return None
    if said not in list(TrustMode):
        raise UnusableEntry(f'"trust" must be one of {", ".join(TrustMode)}')
    return TrustMode(said)


def _tool_names(entry: Mapping[str, Any], keys: Sequence[str]) -> list[str] | None:
    """The names under some keys; None if none of the keys is present."""
    found: list[str] | None = None
    for key in keys:
        if (value := entry.get(key)) is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UnusableEntry(f'"{key}" must be a list of tool names')
        found = [*(found or []), *value]
    return found


_TRANSPORT_NAMES = {
    "stdio": Transport.STDIO,
    "local": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamable_http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "sse": Transport.SSE,
}

ENTRY_KEYS = frozenset(
    "type transport transportType description command args env envFile cwd url httpUrl serverUrl headers timeout "
    "disabled enabled tools includeTools enabledTools excludeTools disabledTools trust start idle_timeout "
    "session".split()
).union(KEYS_OF_AUTH)
"""The keys that an entry may have."""
AS_WRITTEN = ("description", "headersHelper")
"""Keys whose variables are not replaced: the shell replaces those in a command."""
_SHOWN = ENTRY_KEYS.difference("args env envFile url httpUrl serverUrl headers description".split(), KEYS_OF_AUTH)
"""Keys whose values appear in messages, in lists of servers and in the catalog."""
_OF_OTHERS = frozenset({"author", "scope"})
"""Other programs' keys that resemble ours and mean something else."""

_OF_CLIENTS = frozenset("autoApprove alwaysAllow name".split())
"""Keys that concern only the client: what it calls without asking, what it displays."""

_AROUND_SERVERS = ("mcpServers", "servers", "mcp")
"""The keys of a file that lead to servers; duplicates elsewhere in another program's file do not matter."""

_LONGEST_PURPOSE = 300


def read_server_file(
    path: Path,
    environment: Mapping[str, str],
    look_up: LookUp = nothing_stored,
    check: Callable[[Path, bytes], None] | None = None,
) -> list[ServerSpec]:
    """The servers of a file, in its order. `look_up` finds the secrets that it uses, if any.

    `check`: raises if the content must not be used.
    """
    try:
        # A user may name a pipe, so reading is bounded.
        with path.open("rb") as file:
            content = file.read(LARGEST[FileKind.JSON] + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(
            f"No server file at {path}. Take over the servers of your clients with `mcp-optimizer import`, create "
            "one with `mcp-optimizer init`, choose another with --config FILE, or try --demo."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read the server file {path}: {error}.") from error
    if len(content) > LARGEST[FileKind.JSON]:
        raise ConfigurationError(f"The server file {path} is larger than {LARGEST[FileKind.JSON]:,} bytes.")
    if check is not None:
        check(path, content)
    return parse_server_file(text, path, environment, look_up)


def parse_server_file(
    text: str, path: Path, environment: Mapping[str, str], look_up: LookUp = nothing_stored
) -> list[ServerSpec]:
    """The servers in `text`; `path` is for messages and for relative folders."""
    try:
        document = parsed(text, FileKind.JSON)
        repeated = [found for found in duplicate_keys(text) if found.startswith(_AROUND_SERVERS)]
    except UnreadableText as error:
        if kind := foreign_text(text):
            raise ConfigurationError(import_instead(path, kind)) from None
        raise ConfigurationError(f"{path} is not valid JSON: {error}.") from None
    if repeated:
        raise ConfigurationError(f"{path} has a name twice: {', '.join(repeated[:3])}. Keep one of them.")
    return specs_of(document, path, environment, look_up)


def specs_of(document: Any, path: Path, environment: Mapping[str, str], look_up: LookUp) -> list[ServerSpec]:
    """The servers in a parsed file."""
    _, entries = servers_of(document, path)
    names = secrets_used(entries)
    secrets = look_up(names) if names else SecretValues()
    variables = Variables(
        environment,
        secrets,
        input_descriptions(document),
        editor_values(Path.home(), project_of(path, Path.home())),
        has_bare_variables(path),
    )
    return [spec_of(name, entry, path, variables) for name, entry in entries.items()]


def servers_of(document: Any, path: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The entries of a server file by name, and the keys that lead to them."""
    if not isinstance(document, dict):
        raise ConfigurationError(f'{path} must contain a JSON object with "mcpServers".')
    if kind := foreign_document(document):
        raise ConfigurationError(import_instead(path, kind))
    keys: tuple[str, ...] = ("mcpServers",) if "mcpServers" in document else ("servers",)
    found = document.get(keys[0])
    # VS Code's settings.json keeps the servers one level down.
    nested = document.get("mcp")
    if keys[0] not in document and isinstance(nested, dict):
        keys, found = ("mcp", "servers"), nested.get("servers")
    if found is None:
        there = ", ".join(map(repr, document)) or "nothing"
        raise ConfigurationError(f'{path} has no "mcpServers" (or "servers") object; it has {there}.')
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: {keys[-1]!r} must be an object of servers by name.")
    return keys, found


def spec_of(name: str, entry: Any, path: Path, variables: Variables) -> ServerSpec:
    """One entry of the server file at `path`."""
    try:
        return _usable_spec(name, entry, path, variables)
    except UnusableEntry as problem:
        if isinstance(entry, dict) and _is_disabled(entry):
            # A disabled server need not report what is missing.
            return ServerSpec(name=name, transport=_guess_transport(entry), disabled=True)
        text = f"{problem} (in {path})"
        return ServerSpec(name=name, transport=_guess_transport(entry), problem=text, problem_kind=kind_of(problem))


def _is_disabled(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("disabled", False)) or entry.get("enabled", True) is False


def _guess_transport(entry: Any) -> Transport:
    return Transport.HTTP if isinstance(entry, dict) and "url" in entry else Transport.STDIO


def _usable_spec(name: str, entry: Any, path: Path, variables: Variables) -> ServerSpec:
    if not isinstance(entry, dict):
        raise UnusableEntry("the entry is not an object")
    _refuse_mistyped(entry)
    _refuse_shown_secrets(entry)
    description = entry.get("description")
    kept = {key: value for key, value in entry.items() if key in AS_WRITTEN}
    entry = {key: value for key, value in entry.items() if key not in AS_WRITTEN}
    secrets = {secret: variables.secrets.values.get(secret, "") for secret in secrets_used(entry)}
    headers, by_caller = with_caller("headers", entry.get("headers"), variables)
    variables_given, of_env = with_caller("env", entry.get("env"), variables)
    entry |= {key: value for key, value in (("headers", headers), ("env", variables_given)) if key in entry}
    entry = {key: expanded(value, key, variables) for key, value in entry.items()} | kept
    transport, certain = _transport(entry)
    disabled = _is_disabled(entry)
    timeout = timeout_of(entry.get("timeout"))
    tools = tools_of(entry)
    if transport is Transport.STDIO:
        refuse_login_of_a_child(entry)
        command, args = required(entry, "command"), tuple(texts(entry.get("args", []), "args"))
        spec = ServerSpec(
            name=name,
            transport=transport,
            description=_purpose(description),
            command=command,
            args=args,
            env=_variables_of_file(entry, path) | mapping(entry.get("env", {}), "env"),
            cwd=_folder(entry, path),
            timeout=timeout,
            disabled=disabled,
            tools=tools,
            trust=trust_of(entry),
            start=start_of(entry),
            idle_timeout=idle_timeout_of(entry, (command, *args)),
            session=session_of(entry, (command, *args)),
            by_caller=of_env,
            secrets=secrets,
            unread=_unread(entry),
        )
        if starts_itself(spec, path):
            raise UnusableEntry(SAME_FILE)
        return spec
    auth = login(entry, path.parent, variables.environment)
    return ServerSpec(
        name=name,
        transport=transport,
        description=_purpose(description),
        url=_url(entry),
        headers=configured_headers(entry, variables.environment),
        auth=auth,
        # For the command that prints headers, which is the only process of such a server.
        env=mapping(entry.get("env", {}), "env") if auth.headers_command else {},
        cwd=_folder(entry, path) if auth.headers_command else None,
        timeout=timeout,
        disabled=disabled,
        tools=tools,
        trust=trust_of(entry),
        start=start_of(entry),
        idle_timeout=idle_timeout_of(entry),
        session=session_of(entry),
        transport_is_certain=certain,
        by_caller=(*by_caller, *(of_env if auth.headers_command else ())),
        secrets=secrets,
        unread=_unread(entry),
    )


def _unread(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in entry if key not in ENTRY_KEYS | _OF_CLIENTS)


def _variables_of_file(entry: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The variables in VS Code's `envFile`, whose path is relative to the project if the server file belongs to one."""
    if not (named := text_at(entry, "envFile")):
        return {}
    folder = project_of(path, Path.home()) or path.parent
    return variables_of(located(named, "envFile", folder), "envFile")


def _folder(entry: Mapping[str, Any], path: Path) -> str | None:
    cwd = text_at(entry, "cwd")
    return str(located(cwd, "cwd", path.parent)) if cwd else None


def _purpose(description: Any) -> str:
    """What the server is for, in one line; empty if another program uses the key for something else."""
    return " ".join(description.split())[:_LONGEST_PURPOSE] if isinstance(description, str) else ""


def _refuse_mistyped(entry: Mapping[str, Any]) -> None:
    """Rejects a key that is almost one of ours. Other clients' own keys are allowed: their files are read
    unchanged.
    """
    for key in entry.keys() - ENTRY_KEYS:
        if key not in _OF_OTHERS and (ours := meant(key, ENTRY_KEYS - entry.keys())):
            raise UnusableEntry(f'"{key}" is not a key of a server; did you mean "{ours}"?')


def _refuse_shown_secrets(entry: Mapping[str, Any]) -> None:
    """Rejects a secret in a value that is shown to people, or in which it could not work."""
    for key in _SHOWN & entry.keys():
        if names := secrets_used(entry[key]):
            raise UnusableEntry(f'"{key}" is not kept secret, so it cannot contain the secret {min(names)!r}')


def _transport(entry: Mapping[str, Any]) -> tuple[Transport, bool]:
    """The entry's transport, and whether the entry itself states it."""
    declared = next((entry[key] for key in ("type", "transport", "transportType") if key in entry), None)
    if declared is not None:
        known = _TRANSPORT_NAMES.get(str(declared).lower())
        if known is None:
            raise UnusableEntry(f'unknown "type" {declared!r}; use "stdio", "http" or "sse"')
        return known, True
    if "command" in entry:
        return Transport.STDIO, True
    if "url" in entry or "serverUrl" in entry or "httpUrl" in entry:
        url = _url(entry).partition("?")[0].rstrip("/")
        return (Transport.SSE, True) if url.endswith("/sse") else (Transport.HTTP, "httpUrl" in entry)
    raise UnusableEntry('the entry needs a "command" or a "url"')


def _url(entry: Mapping[str, Any]) -> str:
    url = text_at(entry, "url") or text_at(entry, "httpUrl") or text_at(entry, "serverUrl")
    if not url.startswith(("http://", "https://")):
        missing = "" if "://" in url else f"; did you mean {scheme_for(url)} and the rest as it is?"
        raise UnusableEntry(f'"url" must start with http:// or https://{missing}')
    return url


_WHAT_TO_CONNECT = ("command", "url", "httpUrl", "serverUrl")
_NO_FILE = Path("the given configuration")
"""The name, in messages, of a configuration without a file; its folder is the working directory."""


def given_servers(
    given: Mapping[str, Any], environment: Mapping[str, str], look_up: LookUp = nothing_stored
) -> list[ServerSpec]:
    """The servers of a configuration that a program gives: the content of a server file, or the servers by name.

    Relative folders are relative to the working directory.
    """
    try:
        # A copy with only what a file could contain, which later changes do not affect.
        document = json.loads(json.dumps(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{_NO_FILE} cannot be written as JSON: {error}.") from None
    return specs_of(document if _is_document(document) else {"mcpServers": document}, _NO_FILE, environment, look_up)


def _is_document(given: Mapping[str, Any]) -> bool:
    """Whether this is the content of a server file; a server itself may be called "servers" or "mcp"."""
    return any(key in given and not _is_entry(given[key]) for key in ("mcpServers", "servers", "mcp"))


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), str) for key in _WHAT_TO_CONNECT)


def refuse_unusable(name: str, entry: Mapping[str, Any], path: Path, environment: Mapping[str, str]) -> None:
    """Refuses an entry such as one that starts the gateway. Variables may be set later; secrets count as stored."""
    used = {key: value for key, value in entry.items() if key != "disabled"}
    text = with_entry(EMPTY, name, used)
    [spec] = parse_server_file(text, path, environment, lambda names: SecretValues(dict.fromkeys(names, "x")))
    if spec.problem and spec.problem_kind is not FailureKind.VARIABLE:
        raise ConfigurationError(f"The server cannot be used: {spec.problem}.")
