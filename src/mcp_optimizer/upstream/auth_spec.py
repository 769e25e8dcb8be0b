"""How a server is told who calls: nothing, a login, or an account of the gateway. Frozen values, no effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
