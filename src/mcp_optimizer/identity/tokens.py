"""The token endpoint: exchanges a code, a refresh token or the client's own credentials for an access token.

Transient failures (no answer, 429, 5xx) raise `Unanswered` and change nothing; final ones raise `TokenRefused`.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from mcp_optimizer.identity.challenges import scopes_of
from mcp_optimizer.identity.oauth_client import BASIC, KEY, POST, ClientId
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, error_word, sendable

_LONGEST_TOKEN = 16_384
_LONGEST_LIFE = 10 * 365 * 86_400
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 300


class TokenRefused(LoginFailed):
    """The authorization server refused to issue a token; `code` is its error code."""

    def __init__(self, issuer: str, code: str) -> None:
        super().__init__(f"the authorization server {issuer} refused ({code})")
        self.code = code


@dataclass(frozen=True)
class Tokens:
    """The tokens issued by an authorization server."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    expires_at: float | None = None
    """In wall-clock seconds; None if not stated."""
    scopes: tuple[str, ...] | None = None
    """The granted scopes; None if not stated."""

    def after(self, old: Tokens) -> Tokens:
        """These tokens, with the refresh token and scopes of the old ones where the response omits them."""
        scopes = old.scopes if self.scopes is None else self.scopes
        return replace(self, refresh=self.refresh or old.refresh, scopes=scopes)


@dataclass(frozen=True)
class TokenEndpoint:
    """The token endpoint for one client."""

    url: str
    issuer: str
    client: ClientId
    resource: str
    private_key: str = field(default="", repr=False)
    algorithm: str = "ES256"

    async def for_code(self, web: Web, code: str, verifier: str, redirect_uri: str) -> Tokens:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await self._ask(web, {**form, "code_verifier": verifier})

    async def for_refresh(self, web: Web, refresh: str) -> Tokens:
        return await self._ask(web, {"grant_type": "refresh_token", "refresh_token": refresh})

    async def for_client(self, web: Web, scopes: tuple[str, ...]) -> Tokens:
        form = {"grant_type": "client_credentials"}
        return await self._ask(web, {**form, "scope": " ".join(scopes)} if scopes else form)

    async def _ask(self, web: Web, form: dict[str, str]) -> Tokens:
        headers: dict[str, str] = {}
        form["resource"] = self.resource
        if self.client.method == BASIC:
            pair = f"{quote(self.client.client_id, safe='')}:{quote(self.client.secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        elif self.client.method == KEY:
            form |= {"client_assertion_type": _ASSERTION, "client_assertion": self._assertion()}
            form["client_id"] = self.client.client_id
        else:
            form["client_id"] = self.client.client_id
            if self.client.method == POST:
                form["client_secret"] = self.client.secret
        asked_at = time.time()
        reply = await web.post_form(self.url, form, headers)
        if reply.status not in (200, 201) and not (reply.status in (400, 401) and "error" in reply.body):
            # For example a firewall's page, which is not the authorization server's decision.
            raise Unanswered(f"the authorization server {self.issuer} answers with HTTP status {reply.status}")
        if reply.status not in (200, 201):
            raise TokenRefused(self.issuer, error_word(reply.body.get("error"), f"HTTP status {reply.status}"))
        return _tokens(reply.body, asked_at, self.issuer)

    def _assertion(self) -> str:
        import jwt

        now = int(time.time())
        claims = {
            "iss": self.client.client_id,
            "sub": self.client.client_id,
            "aud": self.issuer,
            "iat": now,
            "exp": now + _ASSERTION_SECONDS,
            "jti": uuid.uuid4().hex,
        }
        try:
            return jwt.encode(claims, self.private_key, algorithm=self.algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            raise LoginFailed(f"the private key cannot sign with {self.algorithm}; check both") from None


def _tokens(body: Mapping[str, object], now: float, issuer: str) -> Tokens:
    access, refresh = body.get("access_token"), body.get("refresh_token")
    kind = body.get("token_type", "Bearer")
    usable = isinstance(access, str) and 0 < len(access) <= _LONGEST_TOKEN and _is_sendable(access)
    if not usable or not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginFailed(f"the authorization server {issuer} gave no bearer token that can be used")
    assert isinstance(access, str)
    kept = refresh if isinstance(refresh, str) and sendable(refresh, _LONGEST_TOKEN) else ""
    scope = body.get("scope")
    return Tokens(access, kept, _expiry(body, now), scopes_of(scope) if isinstance(scope, str) else None)


def _expiry(body: Mapping[str, object], now: float) -> float | None:
    life = body.get("expires_in")
    if isinstance(life, str) and life.isascii() and life.isdigit():
        life = int(life[:12])
    if isinstance(life, bool) or not isinstance(life, int | float) or not 0 <= life <= _LONGEST_LIFE:
        return None
    return now + life


def _is_sendable(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
