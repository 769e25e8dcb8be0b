"""A configured server as frozen values: how it is started or reached, how the gateway logs in, which tools are used.

Made from entries of the server file by `parser`; read by every room that knows servers. No effects.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.pins import TrustMode


class AuthKind(StrEnum):
    """What a server's entry says about logging in."""

    AUTO = "auto"
    """Nothing: a server that asks for a login gets one."""
    NONE = "none"
    """Never log in."""
    OAUTH = "oauth"
    """A person logs in."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The gateway has an account of its own; nobody logs in."""


@dataclass(frozen=True)
class AuthSpec:
    """The `auth` of an entry. Secrets never show in a representation."""

    kind: AuthKind = AuthKind.AUTO
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    """PEM; signs the client's assertions instead of a secret."""
    algorithm: str = "ES256"
    """Of the signatures made with the private key."""
    scopes: tuple[str, ...] = ()
    """What is asked for; empty: what the server asks for."""
    issuer: str = ""
    """The authorization server; empty: the one that the server names."""
    resource: str = ""
    """What tokens are for; empty: what the server says it is."""
    client_metadata_url: str = ""
    """Where the client describes itself, for authorization servers that read that."""
    callback_port: int | None = None
    assumes_pkce: bool = False
    """The authorization server supports PKCE although it does not say so."""
    per_caller: bool = False
    """Each caller logs in; otherwise one login serves all."""
    headers_command: str = field(default="", repr=False)
    """A command that prints headers as JSON; they are used instead of a login."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells two accounts at one server apart; without secrets."""
        return (self.kind, self.client_id, self.issuer, self.resource)


NO_AUTH = AuthSpec()


ALL = ("*",)


@dataclass(frozen=True)
class ToolSelection:
    """Names of tools, with `*` as a wildcard. Turned-off tools are off even if they are also named."""

    used: tuple[str, ...] = ALL
    turned_off: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it excludes anything."""
        return "*" not in self.used or bool(self.turned_off)

    def admits(self, name: str) -> bool:
        return _is_one_of(name, self.used) and not _is_one_of(name, self.turned_off)

    def idle(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names in the entry that match no tool, most likely mistyped."""
        there = list(names)
        said = dict.fromkeys((*self.used, *self.turned_off))
        return tuple(one for one in said if one != "*" and not any(fnmatchcase(name, one) for name in there))


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EVERY_TOOL = ToolSelection()


class Transport(StrEnum):
    """How the gateway talks to a server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


@dataclass(frozen=True)
class ServerSpec:
    """One entry of a server file, with its variables replaced.

    `problem` says why the entry cannot be used, if so. One bad entry must not stop the others, so it is carried along
    and reported where servers are listed.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: AuthSpec = NO_AUTH
    description: str = ""
    """What the server is for, as the server file says: searched, and shown with its tools."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The stored secrets that the entry uses, by name. Their values are part of the other fields."""
    timeout: float | None = None
    disabled: bool = False
    tools: ToolSelection = EVERY_TOOL
    trust: TrustMode | None = None
    """What happens to its tools when they change, if its entry says so."""
    unread: tuple[str, ...] = ()
    """Keys of the entry that mean nothing here."""
    transport_is_certain: bool = True
    problem: str = ""
    problem_kind: FailureKind = FailureKind.ENTRY

    @property
    def of_session(self) -> ServerSpec:
        """What a session depends on: while this stays the same, other changes need no new one."""
        return replace(self, description="", timeout=None, tools=EVERY_TOOL, trust=None)

    @property
    def fingerprint(self) -> str:
        """Distinguishes two servers of the same name. Excludes values of variables and headers, and stored secrets."""
        chosen = [self.tools.used, self.tools.turned_off] if self.tools else []
        named = [sorted(self.env), sorted(self.headers)]
        account = [self.auth.identity] if self.auth.identity != NO_AUTH.identity else []
        args = [self.without_secrets(argument) for argument in self.args]
        identity = [self.transport, self.command, args, self.without_secrets(self.url), *named, *chosen, *account]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    @property
    def target(self) -> str:
        """What is started or reached, for people; without arguments, password or query, which may be secrets."""
        if self.transport is Transport.STDIO:
            return self.command
        return re.sub(r"(?<=://)[^/?#]*@|[?#].*", "", self.without_secrets(self.url))

    def without_secrets(self, text: str) -> str:
        """A part of this spec with the names of its stored secrets instead of their values."""
        for name, value in sorted(self.secrets.items(), key=lambda item: -len(item[1])):
            text = text.replace(value, f"[secret {name}]")
        return text
