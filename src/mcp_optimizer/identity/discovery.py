"""Discovers the authorization server of an MCP server: RFC 9728, then RFC 8414 and OpenID, in the protocol's order.

`account_login` uses the result to log in without a person (client credentials). Loaded at the first login, because the
SDK's helpers import half of the SDK.
"""

from __future__ import annotations

import time
from urllib.parse import urljoin, urlsplit

from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import resource_url_from_server_url
from mcp_types.version import LATEST_PROTOCOL_VERSION
from pydantic import ValidationError

from mcp_optimizer.config.serverfile.spec import AuthSpec, ServerSpec
from mcp_optimizer.identity.challenges import Challenge, scopes_of, with_more
from mcp_optimizer.identity.login import Login
from mcp_optimizer.identity.oauth_client import Provider, configured
from mcp_optimizer.identity.web import LoginFailed, Unanswered, Web, checked
from mcp_optimizer.runtime.outgoing import is_this_machine, origin
from mcp_optimizer.upstream.messages import shortened

_HEADERS = {"mcp-protocol-version": LATEST_PROTOCOL_VERSION}
_GRANTS = ["authorization_code", "refresh_token"]
_PKCE = "S256"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_SHOWN = 200


async def discovered(url: str, auth: AuthSpec, challenge: Challenge, web: Web) -> Provider:
    """The authorization server of the MCP server at `url`, with its endpoints."""
    host = checked(url)
    is_near = is_this_machine(host) or (bool(auth.issuer) and is_this_machine(_host(auth.issuer)))
    described, place = await _resource_metadata(url, challenge, web, allows_this_machine=is_near)
    resource = _resource(url, auth, described, place)
    wanted = auth.issuer or (str(described.authorization_servers[0]) if described is not None else "")
    if wanted:
        checked(wanted, allows_this_machine=is_near)
    metadata = await _server_metadata(wanted, url, web)
    if metadata is None:
        if wanted:
            raise LoginFailed(f"its authorization server {_host(wanted)!r} does not describe itself (no metadata)")
        return _guessed(url, resource, challenge, auth)
    issuer = str(metadata.issuer)
    expected = wanted or _root(url)
    if not (issuer == expected or (not wanted and issuers_match(issuer, expected))):
        called, named = shortened(issuer, _SHOWN), shortened(expected, _SHOWN)
        raise LoginFailed(f"its authorization server calls itself {called!r} instead of {named!r}")
    return Provider(
        issuer=issuer,
        authorization_endpoint=_usable(is_near, metadata.authorization_endpoint),
        token_endpoint=_asked(is_near, metadata.token_endpoint, issuer),
        resource=resource,
        scopes=_scopes(auth, challenge, described, metadata),
        registration_endpoint=_asked(is_near, metadata.registration_endpoint, issuer),
        revocation_endpoint=_asked(is_near, metadata.revocation_endpoint, issuer),
        auth_methods=tuple(metadata.token_endpoint_auth_methods_supported or ())[:20],
        takes_metadata_urls=metadata.client_id_metadata_document_supported is True,
        has_pkce=_PKCE in (metadata.code_challenge_methods_supported or ()),
        says_issuer=metadata.authorization_response_iss_parameter_supported is True,
    )


async def token_endpoint(issuer: str, web: Web) -> tuple[str, tuple[str, ...]]:
    """The token endpoint of an authorization server that the user named, and how clients may authenticate there."""
    is_near = is_this_machine(checked(issuer))
    metadata = await _metadata_of(issuer, web, if_missing=": write its token_url", if_other=": write that as issuer")
    methods = tuple(metadata.token_endpoint_auth_methods_supported or ())[:20]
    return _asked(is_near, metadata.token_endpoint, issuer), methods


async def sign_in_provider(issuer: str, scopes: tuple[str, ...], web: Web) -> Provider:
    """The provider at which people sign in to the gateway itself, so it is for no resource."""
    is_near = is_this_machine(checked(issuer))
    metadata = await _metadata_of(issuer, web)
    return Provider(
        issuer=issuer,
        authorization_endpoint=_usable(is_near, metadata.authorization_endpoint),
        token_endpoint=_asked(is_near, metadata.token_endpoint, issuer),
        resource="",
        scopes=scopes,
        auth_methods=tuple(metadata.token_endpoint_auth_methods_supported or ())[:20],
        has_pkce=_PKCE in (metadata.code_challenge_methods_supported or ()),
        says_issuer=metadata.authorization_response_iss_parameter_supported is True,
    )


async def _resource_metadata(
    url: str, challenge: Challenge, web: Web, *, allows_this_machine: bool
) -> tuple[ProtectedResourceMetadata | None, str]:
    """The server's description of itself (RFC 9728), and its address."""
    named = challenge.resource_metadata
    for place in build_protected_resource_metadata_discovery_urls(named or None, url):
        try:
            # On this machine, only at the server's own origin: it must not direct us to other programs here.
            checked(place)
            checked(place, allows_this_machine=allows_this_machine and origin(place) == origin(url))
        except LoginFailed:
            continue
        reply = await web.get(place, _HEADERS)
        if reply.status == 200 and reply.body:
            try:
                return ProtectedResourceMetadata.model_validate(dict(reply.body)), place
            except ValidationError:
                continue
        if reply.status >= 500:
            raise Unanswered(f"{_host(place)} answers with HTTP status {reply.status}")
    return None, ""


async def _metadata_of(issuer: str, web: Web, *, if_missing: str = "", if_other: str = "") -> OAuthMetadata:
    """What an authorization server that the user named says about itself, under exactly that name. Raises LoginFailed,
    with what the user can do.
    """
    metadata = await _server_metadata(issuer, issuer, web)
    if metadata is None:
        raise LoginFailed(f"{_host(issuer)} does not describe itself (no metadata){if_missing}")
    if (called := str(metadata.issuer)) != issuer:
        raise LoginFailed(f"{_host(issuer)} calls itself {shortened(called, _SHOWN)!r}{if_other}")
    return metadata


async def _server_metadata(issuer: str, url: str, web: Web) -> OAuthMetadata | None:
    for place in build_oauth_authorization_server_metadata_discovery_urls(issuer or None, url):
        reply = await web.get(place, _HEADERS)
        if reply.status == 200 and reply.body:
            try:
                return OAuthMetadata.model_validate(dict(reply.body))
            except ValidationError:
                continue
        if reply.status >= 500:
            raise Unanswered(f"{_host(place)} answers with HTTP status {reply.status}")
    return None


def _resource(url: str, auth: AuthSpec, described: ProtectedResourceMetadata | None, place: str) -> str:
    """The resource that tokens are for. Metadata describe the address that they are published for (RFC 9728, section
    3.3): only metadata at the host's own well-known address may ask for a token for the whole host.
    """
    if auth.resource:
        return auth.resource
    # Without the password and the query, which may contain a key.
    parts = urlsplit(url)
    own = resource_url_from_server_url(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    if described is None:
        return own
    said = str(described.resource)
    is_of_host = urlsplit(place).path.rstrip("/") == _WELL_KNOWN and origin(place) == origin(own)
    if said.rstrip("/") not in {own.rstrip("/"), _root(own) if is_of_host else own.rstrip("/")}:
        other = shortened(said, _SHOWN)
        raise LoginFailed(f"its metadata is for another server ({other!r}); if that is right, write it as `resource`")
    return said


def _scopes(
    auth: AuthSpec, challenge: Challenge, described: ProtectedResourceMetadata | None, metadata: OAuthMetadata
) -> tuple[str, ...]:
    """The scopes to request: those of the entry, otherwise of the refusal, otherwise of the server's metadata."""
    if auth.scopes:
        return auth.scopes
    asked = None if challenge.scopes is None else " ".join(challenge.scopes)
    return scopes_of(get_client_metadata_scopes(asked, described, metadata, _GRANTS))


def _guessed(url: str, resource: str, challenge: Challenge, auth: AuthSpec) -> Provider:
    """The default endpoints of the protocol's first revision with logins, for servers without metadata."""
    root = _root(url)
    checked(root)
    return Provider(
        issuer=root,
        authorization_endpoint=urljoin(root, "/authorize"),
        token_endpoint=urljoin(root, "/token"),
        registration_endpoint=urljoin(root, "/register"),
        resource=resource,
        scopes=auth.scopes or challenge.scopes or (),
    )


def _asked(allows_this_machine: bool, endpoint: object, issuer: str) -> str:
    """An endpoint that we send requests to. On this machine, it must be at the authorization server's own origin: other
    programs that listen here never declared that they take part in logins.
    """
    found = _usable(allows_this_machine, endpoint)
    if found and is_this_machine(_host(found)) and origin(found) != origin(issuer):
        raise LoginFailed(f"its authorization server names another address on this machine ({_host(found)})")
    return found


def _usable(allows_this_machine: bool, endpoint: object) -> str:
    if endpoint is None:
        return ""
    checked(str(endpoint), allows_this_machine=allows_this_machine)
    return str(endpoint)


def _root(url: str) -> str:
    """The scheme and host of an address, as written."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _host(url: str) -> str:
    return urlsplit(url).hostname or "?"


async def account_login(spec: ServerSpec, challenge: Challenge, more: tuple[str, ...], web: Web) -> Login:
    """Log in with the account in the entry. `more`: scopes to request in addition."""
    auth = spec.auth
    provider = await discovered(spec.url, auth, challenge, web)
    client = configured(auth, provider)
    if client is None:
        raise LoginFailed("client_credentials needs a client_id in the auth of the entry")
    scopes = with_more(provider.scopes, more)
    login = Login(provider.issuer, provider.token_endpoint, provider.resource, client, scopes=scopes)
    tokens = await login.endpoint(auth).for_client(web, scopes)
    return login.with_tokens(tokens, time.time())
