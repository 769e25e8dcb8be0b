"""The gateway as an OAuth resource server: a real authorization server, and the SDK's own client that logs in to us."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import ACCEPT, HELLO, message
from tests.e2e.running import gateway_at
from tests.e2e.sdk_login import logged_in
from tests.servers.login_app import public_app
from tests.servers.login_world import LoginWorld, issuer_world

WELL_KNOWN = "/.well-known/oauth-protected-resource"
HANDSHAKE = message("initialize", HELLO, 0)


@pytest.fixture
def world() -> Iterator[LoginWorld]:
    with issuer_world() as made:
        yield made


@asynccontextmanager
async def gateway(write_servers: WriteServers, world: LoginWorld, more: str = "") -> AsyncIterator[str]:
    """A gateway that takes tokens of the world's issuer; its address."""
    config = write_servers({"one": plain_server("one")})
    settings = config.with_name("settings.toml")
    settings.write_text(f'require_auth = true\n[[token_issuers]]\nname = "corp"\nissuer = "{world.issuer}"\n{more}')
    async with gateway_at(config, "--settings", settings) as address:
        yield address


async def status(address: str, token: str) -> tuple[int, str]:
    async with httpx2.AsyncClient(timeout=30) as http:
        response = await http.post(address, json=HANDSHAKE, headers={**ACCEPT, "Authorization": f"Bearer {token}"})
        return response.status_code, response.headers.get("www-authenticate", "")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_s_client_logs_in_to_us_with_nothing_but_our_address(
    write_servers: WriteServers, world: LoginWorld, mode: str
) -> None:
    more = 'required_scopes = ["mcp:read"]\n'
    async with (
        gateway(write_servers, world, more) as address,
        logged_in(address, world, mode) as (client, storage),
    ):
        assert "find_tool" in {tool.name for tool in (await client.list_tools()).tools}
        counts = world.counts()
        assert (counts["registrations"], counts["authorizations"], counts["codes_exchanged"]) == (1, 1, 1)
        assert storage.tokens is not None
        assert storage.tokens.scope == "mcp:read"


async def test_the_metadata_are_those_of_the_standard_and_any_page_may_read_them(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    more = '[token_issuers.risk_scopes]\nread = ["mcp:read"]\nwrite = ["mcp:write"]\n'
    async with gateway(write_servers, world, more) as address, httpx2.AsyncClient() as http:
        origin = address.removesuffix("/mcp")
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
            told = await http.get(origin + path, headers={"Origin": "https://page.example"})
            assert told.json() == {
                "resource": address,
                "authorization_servers": [world.issuer],
                "scopes_supported": ["mcp:read", "mcp:write"],
                "bearer_methods_supported": ["header"],
                "resource_name": "mcp-optimizer",
            }
            assert told.headers["access-control-allow-origin"] == "*"
            asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
            assert (await http.options(origin + path, headers=asked)).status_code == 204
            assert (await http.get(origin + path, headers={"Host": "evil.example"})).status_code == 421
        refused = await http.post(address, json=HANDSHAKE, headers=ACCEPT)
        assert refused.status_code == 401
        named = dict(re.findall(r'(\w+)="([^"]*)"', refused.headers["www-authenticate"]))
        assert named == {"resource_metadata": f"{origin}{WELL_KNOWN}/mcp", "scope": "mcp:read"}


async def test_only_a_token_for_us_that_lasts_and_is_of_the_issuer_is_let_in(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    async with gateway(write_servers, world) as address:
        good = {"aud": address, "sub": "ada"}
        assert (await status(address, world.sign(**good)))[0] == 200
        assert (await status(address, world.sign(**good | {"aud": ["https://x", address]})))[0] == 200
        now = int(time.time())
        wrong: list[dict[str, Any]] = [
            {"aud": "https://other.example/mcp"},
            {"aud": f"{address}/"},
            {"aud": None},
            {"aud": re.sub(r":\d+/", ":1/", address)},
            {"exp": now - 60},
            {"exp": None},
            {"nbf": now + 600},
            {"iss": "https://other.example"},
            {"sub": None},
        ]
        for changes in wrong:
            code, challenge = await status(address, world.sign(**good | changes))
            assert code == 401, changes
            assert 'error="invalid_token"' in challenge
            assert "resource_metadata=" in challenge


async def test_a_token_for_another_port_of_this_machine_is_not_let_in_whatever_host_its_sender_names(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    async with gateway(write_servers, world) as address, httpx2.AsyncClient() as http:
        token = world.sign(aud="http://127.0.0.1:9/mcp", sub="ada")
        headers = {**ACCEPT, "Authorization": f"Bearer {token}", "Host": "127.0.0.1:9"}
        assert (await http.post(address, json=HANDSHAKE, headers=headers)).status_code == 401


async def test_a_renewed_key_is_fetched_once_and_an_unknown_one_is_not_looked_for_again(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    async with gateway(write_servers, world) as address:
        assert (await status(address, world.sign(aud=address, sub="ada")))[0] == 200
        assert world.counts()["key_fetches"] == 1
        world.control(renew_keys=True)
        assert (await status(address, world.sign(aud=address, sub="ada")))[0] == 200
        assert world.counts()["key_fetches"] == 2
        world.control(renew_keys=True)
        for _ in range(5):
            assert (await status(address, world.sign(aud=address, sub="ada")))[0] == 401
        assert world.counts()["key_fetches"] == 2


async def test_a_token_with_too_few_scopes_is_told_which_it_needs(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    async with gateway(write_servers, world, 'required_scopes = ["mcp:write"]\n') as address:
        code, challenge = await status(address, world.sign(aud=address, sub="ada", scope="mcp:read"))
        assert code == 403
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="mcp:write"' in challenge
        assert (await status(address, world.sign(aud=address, sub="ada", scope="mcp:write")))[0] == 200


async def test_an_issuer_may_be_asked_about_its_tokens_and_a_revoked_one_is_refused(
    write_servers: WriteServers, world: LoginWorld
) -> None:
    more = f'introspection_url = "{world.issuer}/introspect"\nclient_id = "us"\nclient_secret = "${{PLANTED:-x}}"\n'
    async with gateway(write_servers, world, more) as address:
        app = public_app(replace(world, server_url=address))
        good, revoked = app.log_in()["access_token"], app.log_in()["access_token"]
        assert (await status(address, good))[0] == 200
        world.control(revoke_all=True)
        assert (await status(address, revoked))[0] == 401
        # Its issuer signed it and does not know it.
        assert (await status(address, world.sign(aud=address, sub="ada")))[0] == 401
        assert (await status(address, "opaque-and-unknown"))[0] == 401


async def test_no_token_is_kept(write_servers: WriteServers, world: LoginWorld, tmp_path: Path) -> None:
    async with gateway(write_servers, world) as address:
        token = world.sign(aud=address, sub="ada")
        assert (await status(address, token))[0] == 200
        assert (await status(address, token + "x"))[0] == 401
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [body for body in kept if token.rpartition(".")[2].encode() in body]
