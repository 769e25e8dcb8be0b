"""A login without a person: the gateway has an account of its own (client credentials)."""

from __future__ import annotations

import time

from mcp_optimizer.identity.challenges import Challenge, with_more
from mcp_optimizer.identity.client_ids import configured
from mcp_optimizer.identity.discovery import discovered
from mcp_optimizer.identity.login import Login
from mcp_optimizer.identity.web import LoginFailed, Web
from mcp_optimizer.upstream.spec import ServerSpec


async def account_login(spec: ServerSpec, challenge: Challenge, more: tuple[str, ...], web: Web) -> Login:
    """A token for the account in the entry, also for these scopes."""
    auth = spec.auth
    provider = await discovered(spec.url, auth, challenge, web)
    client = configured(auth, provider)
    if client is None:
        raise LoginFailed("client_credentials needs a client_id in the auth of the entry")
    scopes = with_more(provider.scopes, more)
    login = Login(provider.issuer, provider.token_endpoint, provider.resource, client, scopes=scopes)
    tokens = await login.endpoint(auth).for_client(web, scopes)
    return login.with_tokens(tokens, time.time())
