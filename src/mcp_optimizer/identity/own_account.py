"""A login without a person: the gateway has an account of its own (client credentials). Called by `server_login`."""

from __future__ import annotations

import time

from mcp_optimizer.identity.challenges import Challenge
from mcp_optimizer.identity.client_ids import configured
from mcp_optimizer.identity.discovery import discovered, with_more
from mcp_optimizer.identity.login import Login
from mcp_optimizer.identity.web import Web
from mcp_optimizer.upstream.spec import ServerSpec


async def account_login(spec: ServerSpec, challenge: Challenge, web: Web, more: tuple[str, ...] = ()) -> Login:
    """A new login, with `more` scopes than the server asks for at first."""
    provider = await discovered(spec.url, spec.auth, challenge, web)
    client = configured(spec.auth, provider)
    assert client is not None
    scopes = with_more(provider.scopes, more)
    login = Login(provider.issuer, provider.token_endpoint, provider.resource, client, scopes=scopes)
    return login.with_tokens(await login.endpoint(spec.auth).for_client(web, scopes), time.time())
