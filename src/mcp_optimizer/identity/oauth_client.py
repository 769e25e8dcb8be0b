"""The gateway as an OAuth client: the discovered authorization server, the client id, an attempt to log in, and the
token endpoint.

The client id comes from the entry, a metadata document, or dynamic registration. An attempt provides the address for
the browser and checks the redirect; its verifier and state are secrets (`attempts`). Used by `logins` and `discovery`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from mcp_optimizer.config.serverfile.spec import AuthSpec, ExchangeKind, ExchangeSpec, SubjectKind
from mcp_optimizer.identity.challenges import scopes_of
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, error_word, sendable


@dataclass(frozen=True)
class Provider:
    """A discovered authorization server, with the resource and scopes to request from it."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    resource: str
    scopes: tuple[str, ...] = ()
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    auth_methods: tuple[str, ...] = ()
    """The ways in which clients may authenticate at the token endpoint; empty if not stated."""
    takes_metadata_urls: bool = False
    has_pkce: bool = False
    says_issuer: bool = False
    """Whether it promises to name itself in its redirect (`iss`)."""

    @property
    def other_host(self) -> str | None:
        """The host where people log in, if it differs from the issuer's."""
        host = urlsplit(self.authorization_endpoint).hostname
        return host if host != urlsplit(self.issuer).hostname else None


NAME = "mcp-optimizer"
BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"
KEY = "private_key_jwt"
_WITH_SECRET = (BASIC, POST)


@dataclass(frozen=True)
class ClientId:
    """The gateway's identity at an authorization server."""

    client_id: str
    secret: str = field(default="", repr=False)
    method: str = NONE
    issuer: str = ""
    """The issuer that we registered it with; empty if we did not register it."""
    redirect_uri: str = ""


def configured(auth: AuthSpec, provider: Provider) -> ClientId | None:
    """The client id that needs no registration, if any."""
    if auth.client_id:
        return ClientId(auth.client_id, auth.client_secret, client_method(auth, provider.auth_methods))
    if auth.client_metadata_url and provider.takes_metadata_urls:
        return ClientId(auth.client_metadata_url)
    return None


def client_method(auth: AuthSpec | ExchangeSpec, supported: Collection[str]) -> str:
    """How the client of an entry authenticates at a token endpoint that supports these ways; empty: not stated."""
    if auth.private_key:
        return KEY
    if not auth.client_secret:
        return NONE
    is_only_post = POST in supported and BASIC not in supported
    return POST if is_only_post else BASIC


async def registered(provider: Provider, redirect_uri: str, web: Web) -> ClientId:
    """Register the gateway as a client; returns its new client id."""
    if not provider.registration_endpoint:
        raise LoginFailed(
            f"the authorization server {provider.issuer} registers no clients: register the gateway there by hand, "
            f'with the redirect address {redirect_uri}, and write the client id as "auth": {{"type": "oauth", '
            '"client_id": "..."}'
        )
    body: dict[str, Any] = {
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native",
    }
    if wanted := next((method for method in (NONE, BASIC, POST) if method in provider.auth_methods), None):
        body["token_endpoint_auth_method"] = wanted
    if provider.scopes:
        body["scope"] = " ".join(provider.scopes)
    reply = await web.post_json(provider.registration_endpoint, body)
    if reply.status >= 500 or reply.status == 429:
        raise Unanswered(f"the registration at {provider.issuer} answers with HTTP status {reply.status}")
    client_id, secret = reply.body.get("client_id"), reply.body.get("client_secret") or ""
    if reply.status not in (200, 201) or not isinstance(client_id, str) or not sendable(client_id):
        raise LoginFailed(
            f"the authorization server {provider.issuer} refused to register a client "
            f"({error_word(reply.body.get('error'), f'HTTP status {reply.status}')})"
        )
    if not isinstance(secret, str) or (secret and not sendable(secret)):
        raise LoginFailed(f"the authorization server {provider.issuer} registered a client with an unusable secret")
    method = reply.body.get("token_endpoint_auth_method") or (BASIC if secret else NONE)
    if method not in (NONE, *_WITH_SECRET) or (method in _WITH_SECRET and not secret):
        raise LoginFailed(f"the authorization server {provider.issuer} registered a client that cannot be used")
    return ClientId(client_id, secret, method, provider.issuer, redirect_uri)


_LONGEST_REDIRECT = 20_000
_COPY = "begin again, and copy the whole address of the page that the browser ends at"


class NotAwaited(LoginFailed):
    """The redirect belongs to no login in progress here: it is old, or belongs to another gateway."""


@dataclass(frozen=True)
class Attempt:
    """One attempt to log in: the request to the authorization server."""

    provider: Provider
    client: ClientId
    redirect_uri: str
    scopes: tuple[str, ...]
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @property
    def address(self) -> str:
        """The address where a person logs in."""
        endpoint = self.provider.authorization_endpoint
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(self.asked)}"

    @property
    def asked(self) -> dict[str, str]:
        """The authorization request."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self.provider.resource,
        }
        if self.scopes:
            asked["scope"] = " ".join(self.scopes)
            if "offline_access" in self.scopes:
                # OpenID providers issue a refresh token only after asking the person.
                asked["prompt"] = "consent"
        return asked

    def code_in(self, redirect: str) -> str:
        """The code in the address that the browser was redirected to; raises `LoginFailed` if it may not be used."""
        given = parameters(redirect)
        if "response_type" in given:
            raise LoginFailed(f"that is the address to log in at, not the one that the browser was sent to: {_COPY}")
        if "state" not in given:
            raise LoginFailed(f"that is not an address that a login ends at (it has no state): {_COPY}")
        if not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            raise LoginFailed(f"the address is of another login (its state does not match): {_COPY}")
        issuer = given.get("iss")
        if issuer is not None and issuer != self.provider.issuer:
            raise LoginFailed("the answer is from another authorization server (its iss does not match); do not use it")
        if issuer is None and self.provider.says_issuer:
            raise LoginFailed("the answer does not name its authorization server, although that promised to (no iss)")
        if error := given.get("error"):
            advice = "begin again, and allow it" if error == "access_denied" else "begin again"
            raise LoginFailed(
                f"the authorization server refused the login ({error_word(error, 'no readable reason')}): {advice}"
            )
        if not (code := given.get("code")):
            raise LoginFailed(f"the address contains no code: {_COPY}")
        return code


def parameters(redirect: str) -> Mapping[str, str]:
    """The query parameters of an address, or of the part of it that a person copied."""
    redirect = redirect.strip()[:_LONGEST_REDIRECT]
    query = redirect.partition("?")[2].partition("#")[0] if "?" in redirect else redirect
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    # A parameter given twice is ambiguous, so it is dropped.
    return {name: values[0] for name, values in found.items() if len(values) == 1}


# The token endpoint: exchanges a code, a refresh token, a caller's token or the client's own credentials for an
# access token. Transient failures (no answer, 429, 5xx) raise `Unanswered` and change nothing; final ones raise
# `TokenRefused`.

_LONGEST_TOKEN = 16_384
_LONGEST_LIFE = 10 * 365 * 86_400
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 300
_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_BEARER_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_KIND = "urn:ietf:params:oauth:token-type:{}"
_ACCESS = _KIND.format(SubjectKind.ACCESS)
_JWT = _KIND.format(SubjectKind.JWT)
_ID_JAG = _KIND.format(ExchangeKind.ID_JAG)


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

    async def identity_for_code(
        self, web: Web, code: str, verifier: str, redirect_uri: str
    ) -> tuple[str, tuple[str, ...] | None]:
        """The ID token for a code (OpenID Connect), not verified yet, and the granted scopes, None if not stated."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        body = await self._body(web, {**form, "code_verifier": verifier})
        given, scope = body.get("id_token"), body.get("scope")
        if not isinstance(given, str) or not sendable(given, _LONGEST_TOKEN) or " " in given:
            raise LoginFailed(f"{self.issuer} gave no ID token that can be used: let its client ask for openid")
        return given, scopes_of(scope) if isinstance(scope, str) else None

    async def for_refresh(self, web: Web, refresh: str) -> Tokens:
        return await self._ask(web, {"grant_type": "refresh_token", "refresh_token": refresh})

    async def for_client(self, web: Web, scopes: tuple[str, ...]) -> Tokens:
        form = {"grant_type": "client_credentials"}
        return await self._ask(web, {**form, "scope": " ".join(scopes)} if scopes else form)

    async def for_caller(self, web: Web, token: str, exchange: ExchangeSpec) -> Tokens:
        """Exchange a caller's token for one that lets the gateway act for the caller at a server."""
        form = {"scope": " ".join(exchange.scopes)} if exchange.scopes else {}
        if exchange.kind is ExchangeKind.ON_BEHALF_OF:
            form |= {"grant_type": _BEARER_GRANT, "assertion": token, "requested_token_use": "on_behalf_of"}
        else:
            form |= _exchanging(token, exchange, _ACCESS, exchange.audience)
        asked_at = time.time()
        body = await self._body(web, form)
        if body.get("issued_token_type", _ACCESS) not in (_ACCESS, _JWT):
            raise LoginFailed(f"the authorization server {self.issuer} gave no access token")
        given = _tokens(body, asked_at, self.issuer)
        self._check_is_other(given.access, token)
        return replace(given, refresh="")

    async def assertion_for_caller(self, web: Web, token: str, exchange: ExchangeSpec, audience: str) -> str:
        """The assertion (ID-JAG) of who a caller is, for the authorization server that is the audience."""
        form = {"scope": " ".join(exchange.scopes)} if exchange.scopes else {}
        body = await self._body(web, form | _exchanging(token, exchange, _ID_JAG, audience))
        given = body.get("access_token")
        is_usable = isinstance(given, str) and sendable(given, _LONGEST_TOKEN) and " " not in given
        if body.get("issued_token_type") != _ID_JAG or not is_usable:
            raise LoginFailed(f"the authorization server {self.issuer} gave no identity assertion (ID-JAG)")
        assert isinstance(given, str)
        self._check_is_other(given, token)
        return given

    async def for_assertion(self, web: Web, assertion: str, scopes: tuple[str, ...]) -> Tokens:
        """The token for the person whom an assertion of another authorization server names (RFC 7523)."""
        form = {"grant_type": _BEARER_GRANT, "assertion": assertion}
        given = await self._ask(web, {**form, "scope": " ".join(scopes)} if scopes else form)
        self._check_is_other(given.access, assertion)
        return replace(given, refresh="")

    def _check_is_other(self, given: str, sent: str) -> None:
        if given == sent:
            raise LoginFailed(
                f"the authorization server {self.issuer} gave the token back that it got, which no server may get"
            )

    async def _ask(self, web: Web, form: dict[str, str]) -> Tokens:
        asked_at = time.time()
        return _tokens(await self._body(web, form), asked_at, self.issuer)

    async def _body(self, web: Web, form: dict[str, str]) -> Mapping[str, object]:
        headers: dict[str, str] = {}
        if self.resource:
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
        reply = await web.post_form(self.url, form, headers)
        if reply.status not in (200, 201) and not (reply.status in (400, 401) and "error" in reply.body):
            # For example a firewall's page, which is not the authorization server's decision.
            raise Unanswered(f"the authorization server {self.issuer} answers with HTTP status {reply.status}")
        if reply.status not in (200, 201):
            raise TokenRefused(self.issuer, error_word(reply.body.get("error"), f"HTTP status {reply.status}"))
        return reply.body

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


def _exchanging(token: str, exchange: ExchangeSpec, wanted: str, audience: str) -> dict[str, str]:
    form = {"grant_type": _EXCHANGE_GRANT, "subject_token": token, "subject_token_type": _KIND.format(exchange.subject)}
    return {**form, "requested_token_type": wanted, **({"audience": audience} if audience else {})}


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
