"""The gateway as an OAuth client: the discovered authorization server, the client id, and an attempt to log in.

The client id comes from the entry, a metadata document, or dynamic registration. An attempt provides the address for
the browser and checks the redirect; its verifier and state are secrets (`attempts`). Used by `logins` and `discovery`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from mcp_optimizer.config.serverfile.spec import AuthSpec, ExchangeSpec
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
