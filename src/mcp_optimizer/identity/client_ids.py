"""The client id for an authorization server: from the entry, a metadata document, or dynamic registration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mcp_optimizer.identity.provider import Provider
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, error_word, sendable
from mcp_optimizer.upstream.auth_spec import AuthSpec

NAME = "mcp-optimizer"
BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"
KEY = "private_key_jwt"
_WITH_SECRET = (BASIC, POST)


@dataclass(frozen=True)
class ClientId:
    """Who the gateway is to an authorization server."""

    client_id: str
    secret: str = field(default="", repr=False)
    method: str = NONE
    issuer: str = ""
    """Whom it was registered with; empty if it was not registered by us."""
    redirect_uri: str = ""


def configured(auth: AuthSpec, provider: Provider) -> ClientId | None:
    """The client id that needs no registration."""
    if auth.client_id:
        return ClientId(auth.client_id, auth.client_secret, _method(auth, provider))
    if auth.client_metadata_url and provider.takes_metadata_urls:
        return ClientId(auth.client_metadata_url)
    return None


def _method(auth: AuthSpec, provider: Provider) -> str:
    if auth.private_key:
        return KEY
    if not auth.client_secret:
        return NONE
    is_only_post = POST in provider.auth_methods and BASIC not in provider.auth_methods
    return POST if is_only_post else BASIC


async def registered(provider: Provider, redirect_uri: str, web: Web) -> ClientId:
    """A new client id from the authorization server."""
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
