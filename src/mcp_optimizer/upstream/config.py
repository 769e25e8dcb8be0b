"""Reads the server files that MCP clients use, and turns them into specs.

`mcpServers` (Claude Desktop, Cursor, Cline, Gemini CLI ...) and `servers` (VS Code), JSON with comments and trailing
commas, and variables, which `variables` replaces. An unreadable file is an error; an unusable entry is a spec with a
`problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.textfiles.checked_values import UnusableEntry, mapping, texts
from mcp_optimizer.textfiles.kinds import LARGEST, FileKind
from mcp_optimizer.textfiles.reading import UnreadableText, duplicate_keys, parsed
from mcp_optimizer.upstream.auth_config import KEYS_OF_AUTH, configured_headers, login, refuse_login_of_a_child
from mcp_optimizer.upstream.entry_choices import timeout_of, tools_of, trust_of
from mcp_optimizer.upstream.entry_values import kind_of, located, meant, required, scheme_for, text_at
from mcp_optimizer.upstream.env_files import variables_of
from mcp_optimizer.upstream.foreign_files import (
    editor_values,
    foreign_document,
    foreign_text,
    has_bare_variables,
    import_instead,
    project_of,
)
from mcp_optimizer.upstream.itself import SAME_FILE, starts_itself
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.variables import (
    LookUp,
    SecretValues,
    Variables,
    expanded,
    input_descriptions,
    nothing_stored,
    secrets_used,
)

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
    "disabled enabled tools includeTools enabledTools excludeTools disabledTools trust".split()
).union(KEYS_OF_AUTH)
"""The keys that an entry may have."""
AS_WRITTEN = ("description", "headersHelper")
"""Keys whose variables stay: those in a command are replaced by its shell."""
_SHOWN = ENTRY_KEYS.difference("args env envFile url httpUrl serverUrl headers description".split(), KEYS_OF_AUTH)
"""Keys whose values appear in messages, in lists of servers and in the catalog."""
_OF_OTHERS = frozenset({"author", "scope"})
"""Other programs' keys that resemble ours and mean something else."""

_OF_CLIENTS = frozenset("autoApprove alwaysAllow name".split())
"""Keys that concern only the client: what it calls without asking, what it shows."""

_AROUND_SERVERS = ("mcpServers", "servers", "mcp")
"""The keys of a file that lead to servers; what else another program's file repeats does not matter."""

_LONGEST_PURPOSE = 300


def read_server_file(
    path: Path,
    environment: Mapping[str, str],
    look_up: LookUp = nothing_stored,
    check: Callable[[Path, bytes], None] | None = None,
) -> list[ServerSpec]:
    """The servers of a file, in its order. `look_up` finds the secrets that it uses, if any.

    `check`: raises if what was read must not be used.
    """
    try:
        # A pipe that a user names is read as well, though not without end.
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
            # A disabled server need not report what it lacks.
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
    entry = {key: expanded(value, key, variables) for key, value in entry.items()} | kept
    transport, certain = _transport(entry)
    disabled = _is_disabled(entry)
    timeout = timeout_of(entry.get("timeout"))
    tools = tools_of(entry)
    if transport is Transport.STDIO:
        refuse_login_of_a_child(entry)
        spec = ServerSpec(
            name=name,
            transport=transport,
            description=_purpose(description),
            command=required(entry, "command"),
            args=tuple(texts(entry.get("args", []), "args")),
            env=_variables_of_file(entry, path) | mapping(entry.get("env", {}), "env"),
            cwd=_folder(entry, path),
            timeout=timeout,
            disabled=disabled,
            tools=tools,
            trust=trust_of(entry),
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
        # Of the command that prints headers, which is the only process of such a server.
        env=mapping(entry.get("env", {}), "env") if auth.headers_command else {},
        cwd=_folder(entry, path) if auth.headers_command else None,
        timeout=timeout,
        disabled=disabled,
        tools=tools,
        trust=trust_of(entry),
        transport_is_certain=certain,
        secrets=secrets,
        unread=_unread(entry),
    )


def _unread(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in entry if key not in ENTRY_KEYS | _OF_CLIENTS)


def _variables_of_file(entry: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The variables in VS Code's `envFile`, whose path begins in the project if the server file is one of a project."""
    if not (named := text_at(entry, "envFile")):
        return {}
    folder = project_of(path, Path.home()) or path.parent
    return variables_of(located(named, "envFile", folder), "envFile")


def _folder(entry: Mapping[str, Any], path: Path) -> str | None:
    cwd = text_at(entry, "cwd")
    return str(located(cwd, "cwd", path.parent)) if cwd else None


def _purpose(description: Any) -> str:
    """What the server is for, in a line. Another program may use the key for something else: then it says nothing."""
    return " ".join(description.split())[:_LONGEST_PURPOSE] if isinstance(description, str) else ""


def _refuse_mistyped(entry: Mapping[str, Any]) -> None:
    """Rejects a key that is almost one of ours. Other clients' own keys are allowed: their files are read
    as they are.
    """
    for key in entry.keys() - ENTRY_KEYS:
        if key not in _OF_OTHERS and (ours := meant(key, ENTRY_KEYS - entry.keys())):
            raise UnusableEntry(f'"{key}" is not a key of a server; did you mean "{ours}"?')


def _refuse_shown_secrets(entry: Mapping[str, Any]) -> None:
    """Rejects a secret where it would be shown to people, or could not work anyway."""
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
