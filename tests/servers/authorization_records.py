"""What the authorization server of the tests knows: clients, codes, tokens, counts, and how it is to behave."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, TokenMixin

USER = "ada"
SCOPES = ["mcp:read", "mcp:write"]
OPENID = ["openid", "profile", "email"]
"""Scopes of sign-ins at a client of the server itself (OpenID Connect), which name no resource."""
COUNTS = (
    "authorizations",  # codes given
    "code_requests",  # all that arrived, whatever became of them
    "codes_exchanged",
    "refresh_requests",  # all that arrived, whatever became of them
    "refreshes",  # those that gave a token
    "reuses",  # refresh tokens presented a second time
    "own_tokens",  # tokens for client credentials
    "exchange_requests",  # all that arrived, whatever became of them
    "exchanges",  # those that gave a token
    "put_off",  # refreshes and exchanges that got the status of `fail_refresh` or `fail_exchange`
    "replays",  # tokens or assertions presented a second time, where that is refused
    "assertions",  # identity assertions given
    "asserted",  # tokens given for an identity assertion
    "registrations",
    "revocations",
    "key_fetches",
)


@dataclass
class Switches:
    """What a POST to /control sets. A switch keeps its value until it is set again."""

    auto: bool = False
    """Redirect at once, without the page. So does `auto=1` in an authorization request."""
    user: str = USER
    """Who presses the button."""
    deny: bool = False
    """The button denies access."""
    iss: str = ""
    """The `iss` of redirects, in place of the issuer."""
    fail_refresh: int = 0
    """The HTTP status of every refresh."""
    delay_refresh: float = 0
    """Seconds before a refresh is looked at."""
    fail_exchange: int = 0
    """The HTTP status of every exchange."""
    fail_code: int = 0
    """The HTTP status of every code."""
    delay_code: float = 0
    """Seconds before a code is looked at."""
    codes_last: bool = False
    """A code is good for any number of tokens."""
    id_claims: dict[str, Any] = field(default_factory=dict)
    """What ID tokens say besides, or instead of what is right; None leaves a claim out."""
    id_token: str = ""
    """The ID token, instead of one of ours."""
    delay_exchange: float = 0
    """Seconds before an exchange is looked at."""
    exchange_once: bool = False
    """A token with a `jti` can be exchanged once for each audience."""
    exchange_audience: str = ""
    """The audience of exchanged tokens, in place of the one that was asked for."""
    exchange_returns: str = ""
    """`same`: the caller's own token is given back; `other`: the token is said to be of another kind."""
    assertion_client: str = ""
    """The client whose identity assertions (ID-JAG) name, which is the gateway as the other authorization server knows
    it.
    """


@dataclass(frozen=True)
class RegisteredClient(ClientMixin):
    client_id: str
    client_secret: str
    metadata: dict[str, Any]

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return str(next(iter(self.metadata.get("redirect_uris", [])), ""))

    def get_allowed_scope(self, scope: Any) -> str:
        return scope or SCOPES[0]

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.metadata.get("redirect_uris", [])

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(self.client_secret, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return bool(method == self.metadata.get("token_endpoint_auth_method", "client_secret_basic"))

    def check_response_type(self, response_type: str) -> bool:
        return response_type in self.metadata.get("response_types", ["code"])

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.metadata.get("grant_types", ["authorization_code"])


@dataclass(frozen=True)
class Code(AuthorizationCodeMixin):
    code: str
    client_id: str
    redirect_uri: str
    scope: str
    audience: str
    code_challenge: str
    code_challenge_method: str
    user: str
    nonce: str = ""

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Login:
    """What all tokens that descend from one code have in common."""

    user: str
    revoked: bool = False


@dataclass
class Token(TokenMixin):
    client_id: str
    scope: str
    audience: str
    expires_at: float
    login: Login
    used: bool = False

    def check_client(self, client: Any) -> bool:
        return bool(self.client_id == client.get_client_id())

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return self.expires_at <= time.time()

    def is_revoked(self) -> bool:
        return self.login.revoked


@dataclass
class Records:
    """Everything this server gave out. `secrets` also holds the verifiers and assertions that clients sent."""

    clients: dict[str, RegisteredClient] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    access_tokens: dict[str, Token] = field(default_factory=dict)
    refresh_tokens: dict[str, Token] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    exchanged: set[tuple[str, str]] = field(default_factory=set)
    """The `jti` and audience of tokens that were exchanged."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

    def new_secret(self, prefix: str) -> str:
        self.secrets.append(f"{prefix}-SECRET-{secrets.token_urlsafe(24)}")
        return self.secrets[-1]

    def add_client(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """What the server tells the client about itself. Clients without a secret are not told one."""
        has_secret = metadata.get("token_endpoint_auth_method") not in ("none", "private_key_jwt")
        told = {"client_id": f"client-{len(self.clients) + 1}"}
        if has_secret:
            told |= {"client_secret": self.new_secret("cs")}
        self.clients[told["client_id"]] = RegisteredClient(told["client_id"], told.get("client_secret", ""), metadata)
        return {**told, **({"client_secret_expires_at": 0} if has_secret else {})}

    def find(self, value: str) -> Token | None:
        return self.access_tokens.get(value) or self.refresh_tokens.get(value)

    def revoke_all(self) -> None:
        for token in (*self.access_tokens.values(), *self.refresh_tokens.values()):
            token.login.revoked = True

    def expire_all(self) -> None:
        for token in self.access_tokens.values():
            token.expires_at = 0
