"""A configured server as frozen values: how to start or reach it, how the gateway logs in, which tools are used.

Made from entries of the server file by `parser`; read by every room that handles servers. No effects.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from mcp_optimizer.domain.caller import CallerText, CallerValueMissing, Principal
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.pins import TrustMode


class AuthKind(StrEnum):
    """What a server's entry says about logging in."""

    AUTO = "auto"
    """The entry says nothing: log in if the server asks for it."""
    NONE = "none"
    """Never log in."""
    OAUTH = "oauth"
    """A person logs in."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The gateway has its own account; no person logs in."""
    EXCHANGE = "exchange"
    """The token of each caller is exchanged for one of the server."""


class ExchangeKind(StrEnum):
    """How a caller's token is exchanged."""

    STANDARD = "token-exchange"
    """RFC 8693."""
    ON_BEHALF_OF = "on-behalf-of"
    """Entra's dialect of RFC 7523."""
    ID_JAG = "id-jag"
    """Enterprise-managed authorization: the company's provider gives an assertion, for RFC 7523 at the server's."""


class SubjectKind(StrEnum):
    """What a caller's token is to the authorization server that exchanges it."""

    ACCESS = "access_token"
    ID = "id_token"
    JWT = "jwt"


@dataclass(frozen=True)
class ExchangeSpec:
    """The `exchange` of an `auth`: who exchanges callers' tokens, and for what. Its repr never shows secrets."""

    kind: ExchangeKind = ExchangeKind.STANDARD
    subject: SubjectKind = SubjectKind.ACCESS
    issuer: str = ""
    """The authorization server, whose metadata name its token endpoint."""
    token_url: str = ""
    """The token endpoint, if no metadata are needed."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    algorithm: str = "ES256"
    scopes: tuple[str, ...] = ()
    audience: str = ""
    """The logical name of the server at the authorization server."""
    resource: str = ""
    """The address of the server; empty: its url, unless there is an audience."""

    @property
    def provider(self) -> str:
        """The authorization server, for people."""
        return self.issuer or self.token_url


@dataclass(frozen=True)
class AuthSpec:
    """The `auth` of an entry. Its repr never shows secrets."""

    kind: AuthKind = AuthKind.AUTO
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    """PEM; signs client assertions, in place of a secret."""
    algorithm: str = "ES256"
    """The algorithm of signatures made with the private key."""
    scopes: tuple[str, ...] = ()
    """The scopes to request; empty: those that the server asks for."""
    issuer: str = ""
    """The authorization server; empty: the one that the server names."""
    resource: str = ""
    """The audience of tokens; empty: the one that the server names."""
    client_metadata_url: str = ""
    """The address of the client's metadata document, for authorization servers that read it."""
    callback_port: int | None = None
    assumes_pkce: bool = False
    """The authorization server supports PKCE without announcing it."""
    per_caller: bool = False
    """Each caller logs in separately; otherwise one login serves all."""
    lists_before_login: bool = False
    """A caller that has not logged in finds the tools that others are listed."""
    headers_command: str = field(default="", repr=False)
    """A command that prints headers as JSON, used instead of a login."""
    exchange: ExchangeSpec | None = None
    """How a caller's token is exchanged for one of the server; None: it is not."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Distinguishes two accounts at one server; contains no secrets."""
        own = (self.kind, self.client_id, self.issuer, self.resource)
        if (by := self.exchange) is None:
            return own
        return (*own, by.kind, by.provider, by.client_id, by.audience, by.resource)


NO_AUTH = AuthSpec()


ALL = ("*",)


@dataclass(frozen=True)
class ToolSelection:
    """Names of tools, with `*` as a wildcard. Tools in `turned_off` are off even if `used` names them."""

    used: tuple[str, ...] = ALL
    turned_off: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it excludes any tool."""
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


class Start(StrEnum):
    """When a server starts whose tools are known from before."""

    ON_DEMAND = "on demand"
    WITH_THE_GATEWAY = "with the gateway"


class Sharing(StrEnum):
    """Who shares a session with a server, and its process, on a gateway that several clients on stdio join."""

    OWN = "own"
    """Each client has one of its own."""
    SHARED = "shared"
    """Clients share one, unless the server could not tell them apart."""


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
    """What the server is for, from the server file; searched, and shown with its tools."""
    by_caller: tuple[CallerText, ...] = ()
    """The variables and headers that differ from caller to caller."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The stored secrets that the entry uses, by name. Their values are also part of other fields."""
    timeout: float | None = None
    disabled: bool = False
    tools: ToolSelection = EVERY_TOOL
    trust: TrustMode | None = None
    """What happens to its tools when they change, if its entry says so."""
    start: Start | None = None
    """When it starts, if its entry says so."""
    idle_timeout: float | None = None
    """Seconds without use after which it stops, if its entry says so; infinite: never."""
    session: Sharing = Sharing.SHARED
    unread: tuple[str, ...] = ()
    """Keys of the entry that have no meaning here."""
    transport_is_certain: bool = True
    problem: str = ""
    problem_kind: FailureKind = FailureKind.ENTRY

    @property
    def is_of_each_caller(self) -> bool:
        """Whether each caller has a session of its own, with a login or with values of its own."""
        return self.auth.per_caller or bool(self.by_caller)

    def for_caller(self, caller: Principal) -> ServerSpec:
        """The entry with the values of this caller; raises CallerValueMissing."""
        if not self.by_caller:
            return self
        env, headers = dict(self.env), dict(self.headers)
        for one in self.by_caller:
            (headers if one.kind == "headers" else env)[one.name] = one.of(caller)
        return replace(self, env=env, headers=headers, by_caller=())

    def missing_of(self, caller: Principal) -> str:
        """Why this caller cannot use the entry; empty if it can."""
        try:
            self.for_caller(caller)
        except CallerValueMissing as missing:
            return f"it acts with values of each caller, and {missing}"
        if self.auth.exchange is not None and not caller.claims:
            return "it exchanges the token of each caller, and this caller has none: it uses a key"
        return ""

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names of all its headers, also of those that differ from caller to caller."""
        return (*self.headers, *(one.name for one in self.by_caller if one.kind == "headers"))

    @property
    def of_session(self) -> ServerSpec:
        """What a session depends on: while this stays the same, other changes need no new one."""
        return replace(self, description="", timeout=None, tools=EVERY_TOOL, trust=None, start=None, idle_timeout=None)

    @property
    def fingerprint(self) -> str:
        """Distinguishes two servers of the same name. Excludes values of variables and headers, and stored secrets."""
        chosen = [self.tools.used, self.tools.turned_off] if self.tools else []
        variables = (*self.env, *(one.name for one in self.by_caller if one.kind == "env"))
        named = [sorted(variables), sorted(self.header_names)]
        account = [self.auth.identity] if self.auth.identity != NO_AUTH.identity else []
        args = [self.without_secrets(argument) for argument in self.args]
        identity = [self.transport, self.command, args, self.without_secrets(self.url), *named, *chosen, *account]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    @property
    def target(self) -> str:
        """The command or address, for people; without arguments, password or query, which may be secret."""
        if self.transport is Transport.STDIO:
            return self.command
        return re.sub(r"(?<=://)[^/?#]*@|[?#].*", "", self.without_secrets(self.url))

    def without_secrets(self, text: str) -> str:
        """A part of this spec with each stored secret replaced by its name."""
        for name, value in sorted(self.secrets.items(), key=lambda item: -len(item[1])):
            text = text.replace(value, f"[secret {name}]")
        return text
