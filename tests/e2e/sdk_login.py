"""The SDK's own OAuth client, logging in to a gateway through a real authorization server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.servers.login_app import CALLBACK
from tests.servers.login_world import LoginWorld


class Storage:
    """What the client keeps, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def logged_in(address: str, world: LoginWorld, mode: str) -> AsyncIterator[tuple[Client, Storage]]:
    """The SDK's client, whose user presses Allow."""
    redirects: list[str] = []
    storage = Storage()

    async def open_browser(url: str) -> None:
        redirects.append(world.browser(url))

    async def come_back() -> AuthorizationCodeResult:
        said = parse_qs(urlsplit(redirects[-1]).query)
        return AuthorizationCodeResult(code=said["code"][0], state=said["state"][0], iss=said["iss"][0])

    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(CALLBACK)], grant_types=["authorization_code", "refresh_token"], client_name="test"
    )
    provider = OAuthClientProvider(address, metadata, storage, open_browser, come_back)
    async with httpx2.AsyncClient(auth=provider, timeout=30) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client, storage
