"""What a server demands is asked of it before a login begins for which nothing was sent yet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec, ServerSpec, Transport
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.identity.logins import Logins
from mcp_optimizer.identity.web import Web

URL = "https://mcp.example/mcp"
ISSUER = "https://login.example"
PLACE = "https://mcp.example/described/elsewhere"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "code_challenge_methods_supported": ["S256"],
}
DESCRIBED = {"resource": URL, "authorization_servers": [ISSUER], "scopes_supported": ["everything"]}
SPEC = ServerSpec("notes", Transport.HTTP, url=URL, auth=AuthSpec(AuthKind.OAUTH, "me", per_caller=True))
ADA = Principal("key:1", "key:ada")


async def endless() -> AsyncIterator[bytes]:
    yield b"data: {}\n\n"
    await asyncio.Event().wait()


async def json_of(value: object) -> AsyncIterator[bytes]:
    yield json.dumps(value).encode()


def answer(status: int, value: object = None, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, content=json_of(value))


def challenge(status: int) -> httpx2.Response:
    return answer(status, **{"WWW-Authenticate": f'Bearer resource_metadata="{PLACE}", scope="read"'})


def stream() -> httpx2.Response:
    return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=endless())


def silence() -> httpx2.Response:
    raise httpx2.ConnectError("no")


async def scopes_asked_for(refusal: Callable[[], httpx2.Response], place: str) -> list[str]:
    """What the login of a caller asks for, if the server refuses a request without a token like this, and is described
    at that address.
    """

    def answered(request: httpx2.Request) -> httpx2.Response:
        asked = str(request.url)
        assert "authorization" not in request.headers
        if asked == URL:
            return refusal()
        found = {place: DESCRIBED, f"{ISSUER}/.well-known/oauth-authorization-server": METADATA}.get(asked)
        return answer(404 if found is None else 200, found)

    logins = Logins(web=Web(httpx2.MockTransport(answered)))
    try:
        async with asyncio.timeout(10):
            attempt = await logins.begin(SPEC, "http://localhost:1234/callback", principal=ADA)
        return parse_qs(urlsplit(attempt.address).query)["scope"]
    finally:
        await logins.close()


async def test_a_caller_s_first_login_asks_for_what_the_server_demands_where_it_says_it_is_described() -> None:
    assert await scopes_asked_for(lambda: challenge(401), PLACE) == ["read"]


@pytest.mark.parametrize("refusal", [stream, lambda: answer(405), lambda: challenge(403), silence])
async def test_a_server_that_demands_nothing_then_is_asked_for_its_description(
    refusal: Callable[[], httpx2.Response],
) -> None:
    usual = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
    assert await scopes_asked_for(refusal, usual) == ["everything"]
