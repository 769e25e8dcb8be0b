"""Reads from a server's entry how to log in and which headers to send: `auth`, and what other programs write.

`auth` is ours (Cursor's is read too) and is checked strictly. `oauth` belongs to Claude Code, VS Code, Gemini CLI,
opencode and Codex, whose other keys are ignored. Pure, except that files named for a secret or a key are read. No
message quotes a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.textfiles.checked_values import UnusableEntry, mapping, text_of
from mcp_optimizer.upstream.auth_spec import AuthKind, AuthSpec
from mcp_optimizer.upstream.auth_values import GivenValues
from mcp_optimizer.upstream.entry_values import from_environment, text_at

KEYS_OF_AUTH = frozenset(
    "auth oauth headersHelper scopes oauth_resource bearer_token_env_var http_headers env_http_headers".split()
)
"""The keys of an entry that are read here."""

_KINDS = {"none": AuthKind.NONE, "oauth": AuthKind.OAUTH, "client_credentials": AuthKind.CLIENT_CREDENTIALS}
_WRITE_A_KIND = 'write "none", "oauth" or "client_credentials"'
_PKCE = {"strict": False, "assume": True}
_PRINCIPALS = {"shared": False, "caller": True}
_ALGORITHMS = frozenset("ES256 ES384 ES512 RS256 RS384 RS512 PS256 PS384 PS512 EdDSA".split())
_OF_AUTH = frozenset(
    "type client_id client_secret client_secret_env client_secret_file private_key_file algorithm scopes scope issuer "
    "resource client_metadata_url callback_port pkce principal".split()
)
_OF_OAUTH = frozenset(
    "enabled client_id client_secret scopes scope issuer resource client_metadata_url callback_port".split()
)
_LONGEST_COMMAND = 10_000


def refuse_login_of_a_child(entry: Mapping[str, Any]) -> None:
    """A server that we start has our environment to learn who calls, and no login."""
    if entry.get("auth") not in (None, "none"):
        raise UnusableEntry('"auth" is for servers with a "url"; give a server with a "command" its secrets in "env"')


def login(entry: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> AuthSpec:
    """How to log in to a server over HTTP. `folder` is the server file's, to which other files are relative."""
    given = GivenValues(folder, environment)
    kind = _kind_of_others(entry, given)
    kind = _kind(entry, given) or kind
    spec = AuthSpec(
        kind=kind or AuthKind.AUTO,
        client_id=given.text("client_id"),
        client_secret=given.secret("client_secret"),
        private_key=given.private_key("private_key_file"),
        algorithm=given.choice("algorithm", _ALGORITHMS) or AuthSpec.algorithm,
        scopes=given.scopes(),
        issuer=given.url("issuer"),
        resource=given.url("resource"),
        client_metadata_url=given.url("client_metadata_url"),
        callback_port=given.port("callback_port"),
        assumes_pkce=_PKCE.get(given.choice("pkce", _PKCE), False),
        per_caller=_PRINCIPALS.get(given.choice("principal", _PRINCIPALS), False),
        headers_command=_headers_command(entry),
    )
    _refuse_unusable(spec, is_ours=entry.get("auth") is not None)
    return spec


def _kind(entry: Mapping[str, Any], given: GivenValues) -> AuthKind | None:
    """What `auth` says, whose values are added to the given ones."""
    value = entry.get("auth")
    if value is None:
        return None
    if isinstance(value, str):
        return _kind_named(value, "auth")
    if not isinstance(value, dict):
        raise UnusableEntry(f'"auth" must be a string or an object; {_WRITE_A_KIND}')
    given.add("auth", value, _OF_AUTH, is_ours=True)
    return _kind_named(given.text("type"), given.name("type")) if given.has("type") else AuthKind.OAUTH


def _kind_named(value: str, where: str) -> AuthKind:
    if value not in _KINDS:
        # Other programs have a token here.
        raise UnusableEntry(
            f'"{where}" says nothing that is known; {_WRITE_A_KIND}. '
            'A token belongs in "headers": {"Authorization": "Bearer ${TOKEN}"}'
        )
    return _KINDS[value]


def _kind_of_others(entry: Mapping[str, Any], given: GivenValues) -> AuthKind | None:
    """What other programs say: `oauth`, and Codex's keys beside it."""
    codex = {"resource": entry.get("oauth_resource"), "scopes": entry.get("scopes")}
    given.add("", codex, _OF_OAUTH, written={"resource": "oauth_resource"})
    value = entry.get("oauth")
    if value is None:
        return None
    if isinstance(value, bool):
        return AuthKind.OAUTH if value else AuthKind.NONE
    if not isinstance(value, dict):
        raise UnusableEntry('"oauth" must be an object, or false if this server needs no login')
    given.add("oauth", value, _OF_OAUTH)
    return AuthKind.NONE if value.get("enabled") is False else AuthKind.OAUTH


def _headers_command(entry: Mapping[str, Any]) -> str:
    """Claude Code's `headersHelper`."""
    if entry.get("headersHelper") is None:
        return ""
    command = text_at(entry, "headersHelper")
    if not command.strip():
        raise UnusableEntry('"headersHelper" is empty; write a command that prints a JSON object of headers')
    if len(command) > _LONGEST_COMMAND or "\0" in command:
        raise UnusableEntry('"headersHelper" is not a usable command')
    return command


def _refuse_unusable(spec: AuthSpec, *, is_ours: bool) -> None:
    """Refuses values that contradict each other, or are not enough."""
    if spec.client_secret and spec.private_key:
        raise UnusableEntry('"auth" has a client secret and a private key; keep one')
    if (spec.client_secret or spec.private_key) and not spec.client_id:
        raise UnusableEntry('a client secret or private key is of no use without its client; add "client_id"')
    if spec.kind is AuthKind.CLIENT_CREDENTIALS:
        if spec.client_secret and not spec.issuer:
            raise UnusableEntry(
                '"auth" sends its client secret to the authorization server without asking, so name that server: '
                'add "issuer", such as "https://login.example.com"'
            )
        if not spec.client_id:
            raise UnusableEntry('"auth" of type "client_credentials" needs "client_id"')
        if not (spec.client_secret or spec.private_key):
            raise UnusableEntry(
                '"auth" of type "client_credentials" needs "client_secret" (or "client_secret_env", '
                '"client_secret_file") or "private_key_file"'
            )
    if is_ours and spec.headers_command and spec.kind is not AuthKind.NONE:
        raise UnusableEntry('"auth" and "headersHelper" both say who calls; keep one')


def configured_headers(entry: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """The headers of an entry: `headers`, and Codex's keys for the same."""
    headers = mapping(entry.get("headers", {}), "headers") | mapping(entry.get("http_headers") or {}, "http_headers")
    for header, variable in mapping(entry.get("env_http_headers") or {}, "env_http_headers").items():
        headers[header] = from_environment(variable, f"env_http_headers.{header}", environment)
    if entry.get("bearer_token_env_var"):
        where = "bearer_token_env_var"
        token = from_environment(text_of(entry[where], where), where, environment)
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    return headers
