"""A login as it is stored: its issuer, client, resource, tokens and expiry. Pure values and their JSON."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mcp_optimizer.config.serverfile.spec import AuthSpec, ServerSpec
from mcp_optimizer.domain.caller import LOCAL_PRINCIPAL, Principal
from mcp_optimizer.identity.oauth_client import ClientId, TokenEndpoint, Tokens

SHARED = "shared"
"""The account of a login that serves every caller."""

ONLY_USER = "user"
"""The account of a gateway on stdio, and of commands: the user who started it."""

_AHEAD = 0.2
"""Share of a token's lifetime that remains when it is refreshed."""

_LONGEST_AHEAD = 300.0


@dataclass(frozen=True)
class Login:
    """One principal's login to one server."""

    issuer: str
    token_endpoint: str
    resource: str
    client: ClientId
    revocation_endpoint: str = ""
    scopes: tuple[str, ...] = ()
    """The scopes that were requested."""
    tokens: Tokens | None = None
    given_at: float = 0.0
    """When the tokens were last issued or refreshed, in wall-clock seconds."""
    error: str = ""
    """Why the last refresh failed, if it did."""
    is_over: bool = False
    """Whether only a new login helps."""
    wanted: tuple[str, ...] = ()
    """Scopes that a call needed and the login lacks."""
    caller: str = ""
    """The name of the caller whose own login it is, for people; empty for any other login."""

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens.access}"} if self.tokens is not None else {}

    @property
    def secrets(self) -> dict[str, str]:
        """The values that must never be shown, by name."""
        given = self.tokens or Tokens("")
        found = {"token": given.access, "refresh token": given.refresh, "client secret": self.client.secret}
        return {name: secret for name, secret in found.items() if secret}

    def is_expired(self, now: float) -> bool:
        expires = self.tokens.expires_at if self.tokens is not None else 0.0
        return expires is not None and now >= expires

    def is_stale(self, now: float) -> bool:
        """Whether the token is due for a refresh, which is some time before it expires."""
        expires = self.tokens.expires_at if self.tokens is not None else 0.0
        if expires is None:
            return False
        ahead = min(_LONGEST_AHEAD, _AHEAD * max(0.0, expires - self.given_at))
        return now >= expires - ahead

    def can_replace(self, other: Login | None) -> bool:
        """Whether this login is worth an attempt after the other one was refused."""
        is_usable = self.tokens is not None and not self.is_over
        return is_usable and (other is None or self.tokens != other.tokens)

    def with_tokens(self, tokens: Tokens, now: float) -> Login:
        return replace(self, tokens=tokens, given_at=now, error="")

    def endpoint(self, auth: AuthSpec) -> TokenEndpoint:
        return TokenEndpoint(
            self.token_endpoint, self.issuer, self.client, self.resource, auth.private_key, auth.algorithm
        )

    def to_json(self) -> bytes:
        found = asdict(self)
        if not self.caller:
            # Gateways of before cannot read a login with a key that they do not know.
            del found["caller"]
        return json.dumps(found).encode()


def login_of(text: bytes) -> Login | None:
    """A login from its stored JSON; None if it cannot be read, for example a row of a later version."""
    try:
        found = json.loads(text)
        tokens, client = found.pop("tokens"), found.pop("client")
        return Login(
            **{key: _tuple(value) for key, value in found.items()},
            client=ClientId(**client),
            tokens=None if tokens is None else Tokens(**{key: _tuple(value) for key, value in tokens.items()}),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def account_of(spec: ServerSpec, principal: Principal) -> str:
    """Whose login a caller uses at a server."""
    if not spec.auth.per_caller:
        return SHARED
    return ONLY_USER if principal is LOCAL_PRINCIPAL else principal.id


def advice(server: str) -> str:
    """Advice on how to log in."""
    return f"run `mcp-optimizer login {shlex.quote(server)}`"


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class LoginStatus:
    """The state of a login as shown to people; never contains a token."""

    server: str
    state: str
    """`none`, `logged in`, `expired`, `login needed`, `more permissions needed`, or `exchanged`."""
    caller: str = field(default="", kw_only=True)
    """The caller whose own login it is; empty for any other login."""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    refreshed_at: float | None = None
    can_refresh: bool = False
    error: str = ""
    wanted: tuple[str, ...] = field(default=())


def status_of(server: str, login: Login | None, now: float, caller: str = "") -> LoginStatus:
    """The state of a login."""
    if login is None or login.tokens is None:
        return LoginStatus(server, "none", caller=caller)
    state = "logged in"
    if login.is_over:
        state = "login needed"
    elif login.wanted:
        state = "more permissions needed"
    elif login.is_expired(now):
        state = "expired" if login.tokens.refresh else "login needed"
    granted = login.tokens.scopes
    return LoginStatus(
        server,
        state,
        login.issuer,
        login.scopes if granted is None else granted,
        login.tokens.expires_at,
        login.given_at or None,
        bool(login.tokens.refresh),
        login.error,
        login.wanted,
        caller=caller,
    )
