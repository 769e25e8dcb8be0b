"""A caller's token is exchanged for one of the server, at a real authorization server that refuses, waits and lies."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import MODERN, PATIENCE, HttpClient, message
from tests.e2e.running import command, gateway_at
from tests.servers.authorization_grants import BEARER, EXCHANGE
from tests.servers.login_world import LoginWorld, issuer_world, running
from tests.waiting import until

pytestmark = pytest.mark.slow

SETTINGS = """
encoder = "none"
require_auth = true
log_level = "debug"
trust_remote = "off"
[[token_issuers]]
name = "corp"
issuer = "{issuer}"
"""
CALL, FIND = 0, 1
"""Where a caller is told something. A tool that no caller was ever listed is unknown to a call, and what was listed is
found while the session lasts.
"""
OF_A_CLIENT = ("client_id", "client_secret")
USUAL: dict[str, Any] = {
    "fail_exchange": 0,
    "delay_exchange": 0,
    "exchange_once": False,
    "exchange_audience": "",
    "exchange_returns": "",
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[LoginWorld]:
    with issuer_world() as made:
        yield made


@pytest.fixture
def world(issuer: LoginWorld) -> Iterator[LoginWorld]:
    """The company's authorization server, and the server that takes only its tokens."""
    issuer.control(**USUAL)
    with running("tests.servers.personal", "--issuer", issuer.issuer) as server_url:
        yield LoginWorld(server_url, issuer.issuer, issuer.http)


@dataclass(frozen=True)
class Managed:
    """A company's provider, and a server elsewhere whose own authorization server trusts it."""

    company: LoginWorld
    elsewhere: LoginWorld

    def auth(self, **exchange: Any) -> dict[str, Any]:
        """What an operator writes."""
        there = self.elsewhere.add_client(grant_types=[BEARER])
        self.company.control(assertion_client=there["client_id"])
        here = self.company.add_client(grant_types=[EXCHANGE])
        given = {"type": "id-jag", "issuer": self.company.issuer, **of_client(here), **exchange}
        return {"principal": "caller", "issuer": self.elsewhere.issuer, **of_client(there), "exchange": given}


@pytest.fixture
def managed(issuer: LoginWorld) -> Iterator[Managed]:
    issuer.control(**USUAL)
    with (
        running("tests.servers.authorization_server", "--seconds", "60", "--trusts", issuer.issuer) as other,
        running("tests.servers.personal", "--issuer", other) as server_url,
    ):
        yield Managed(issuer, LoginWorld(server_url, other, issuer.http))


def of_client(told: dict[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in OF_A_CLIENT}


class Desk:
    """A gateway, and the people who call it with tokens of the company."""

    def __init__(self, world: LoginWorld, address: str, folder: Path, http: httpx2.AsyncClient) -> None:
        self.world, self.address, self.folder = world, address, folder
        self._http = http
        self._tokens: dict[str, str] = {}

    def token(self, who: str, *, renew: bool = False) -> str:
        if renew or who not in self._tokens:
            said = {"aud": self.address, "sub": who, "jti": secrets.token_hex(8), "exp": int(time.time()) + 600}
            self._tokens[who] = self.world.sign(**said)
        return self._tokens[who]

    async def asks(self, tool: str, arguments: dict[str, Any], bearer: str) -> str:
        client = HttpClient(self.address, MODERN, self._http)
        client.headers["Authorization"] = f"Bearer {bearer}"
        answer = await client.exchange(message("tools/call", {"name": tool, "arguments": arguments}, 1, MODERN))
        return json.dumps(answer.get("result", answer))

    async def finds(self, who: str) -> str:
        return await self.asks("find_tool", {"tool_description": "who calls"}, self.token(who))

    async def calls(self, who: str, tool: str = "desk__whoami") -> str:
        return await self.asks("call_tool", {"tool_name": tool, "parameters": {}}, self.token(who))

    async def acts(self, who: str, tool: str = "desk__whoami") -> None:
        """Call until the answer is this person's, which a start or a pause may precede."""
        said: list[str] = []

        async def has_acted() -> bool:
            said[:] = [await self.calls(who, tool)]
            return f"{who}-secret" in said[0]

        await until(has_acted, f"{who} acts", PATIENCE)

    async def is_told(self, who: str, why: str, where: tuple[int, ...] = (CALL, FIND)) -> None:
        said: list[str] = []

        async def has_said() -> bool:
            said[:] = [await self.calls(who), await self.finds(who)]
            return all(why in said[one] for one in where)

        await until(has_said, f"{who} is told {why}", PATIENCE)
        assert f"{who}-secret" not in said[0]
        assert self.token(who) not in "".join(said)

    def exchanges(self) -> int:
        return self.world.counts()["exchanges"]

    def server(self, **values: Any) -> dict[str, Any]:
        place = self.world.server_url.replace("/mcp", "/control")
        sent = self.world.http.post(place, json=values) if values else self.world.http.get(place)
        return dict(sent.raise_for_status().json())


@asynccontextmanager
async def desk(world: LoginWorld, folder: Path, **exchange: Any) -> AsyncIterator[Desk]:
    given = {"issuer": world.issuer, **of_client(world.add_client(grant_types=[EXCHANGE])), **exchange}
    async with gateway(world, folder, world.server_url, {"principal": "caller", "exchange": given}) as made:
        yield made


@asynccontextmanager
async def gateway(world: LoginWorld, folder: Path, server_url: str, auth: dict[str, Any]) -> AsyncIterator[Desk]:
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"desk": {"url": server_url, "auth": auth}}}))
    settings = folder / "settings.toml"
    settings.write_text(SETTINGS.format(issuer=world.issuer))
    async with (
        gateway_at(config, "--settings", settings, "--database", folder / "catalog.db") as address,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        yield Desk(world, address, folder, http)


async def test_each_caller_acts_with_a_token_of_its_own_and_the_server_never_gets_the_caller_s(
    world: LoginWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = world.counts()["exchanges"]
    async with desk(world, tmp_path) as made:
        await asyncio.gather(*(made.acts(who) for who in ("ada", "bob") for _ in range(5)))
        found = await made.finds("ada")
        assert "bob-secret" not in found
        assert "whoami" in found
        told = made.server()
        assert made.exchanges() - before == 2
        own = [made.token("ada"), made.token("bob")]
        assert not set(own) & set(told["tokens"])
        assert len([one for one in told["tokens"] if one]) == 2
        assert told["mixed"] == 0
        key = await _key(tmp_path)
        said = await made.asks("call_tool", {"tool_name": "desk__whoami", "parameters": {}}, key)
        assert "this caller has none: it uses a key" in said
    log = capfd.readouterr().err
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    for secret in (*own, *told["tokens"], *world.secrets()):
        assert not secret or (secret not in log and secret.encode() not in kept)


async def _key(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MCP_OPTIMIZER_DATABASE", str(folder / "catalog.db"))
        return await made_key("ci")


async def test_a_token_that_ends_during_a_call_is_replaced_and_the_call_goes_on(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with desk(world, tmp_path) as made:
        await made.acts("ada")
        held = asyncio.create_task(made.calls("ada", "desk__hold"))
        await until(lambda: made.server()["held"], "the call has reached the server", PATIENCE)
        before = made.exchanges()
        world.control(expire_all=True)
        answers = await asyncio.gather(*(made.calls("ada") for _ in range(5)))
        assert all("ada-secret" in one for one in answers), answers
        assert made.exchanges() - before == 1
        made.server(release=True)
        assert "ada-secret hold" in await held


async def test_a_replayed_token_is_refused_and_the_caller_s_next_one_is_exchanged(
    world: LoginWorld, tmp_path: Path
) -> None:
    world.control(exchange_once=True)
    async with desk(world, tmp_path) as made:
        await made.acts("ada")
        await made.acts("bob")
        world.control(expire_all=True)
        await made.is_told("ada", "refused (invalid_grant)", (CALL,))
        assert world.counts()["replays"] > 0
        made.token("ada", renew=True)
        await made.acts("ada")
        made.token("bob", renew=True)
        await made.acts("bob")


async def test_a_token_for_another_audience_is_refused_by_the_server_and_that_is_said(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with desk(world, tmp_path) as made:
        await made.acts("bob")
        world.control(exchange_audience="https://elsewhere.example/mcp")
        await made.is_told("ada", "it refuses the token that")
        assert "bob-secret" in await made.calls("bob")
        world.control(exchange_audience="")
        await made.acts("ada")


@pytest.mark.parametrize(
    ("returns", "why"), [("same", "gave the token back that it got"), ("other", "gave no access token")]
)
async def test_what_is_no_token_for_the_server_never_reaches_it(
    world: LoginWorld, tmp_path: Path, returns: str, why: str
) -> None:
    world.control(exchange_returns=returns)
    async with desk(world, tmp_path) as made:
        await made.is_told("ada", why, (FIND,))
        assert [one for one in made.server()["tokens"] if one] == []


async def test_a_client_that_may_not_exchange_is_told_so(world: LoginWorld, tmp_path: Path) -> None:
    async with desk(world, tmp_path, client_secret="wrong") as made:
        await made.is_told("ada", "refused (invalid_client)", (FIND,))


async def test_while_the_provider_is_down_known_callers_go_on_and_new_ones_are_told(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with desk(world, tmp_path) as made:
        await made.acts("bob")
        world.control(fail_exchange=503)
        await made.is_told("ada", "answers with HTTP status 503")
        assert "bob-secret" in await made.calls("bob")
        world.control(fail_exchange=0)
        await made.acts("ada")


async def test_while_the_provider_is_slow_nobody_waits_but_the_caller_it_is_slow_for(
    world: LoginWorld, tmp_path: Path
) -> None:
    async with desk(world, tmp_path) as made:
        await made.acts("bob")
        world.control(delay_exchange=600)
        before = world.counts()["exchange_requests"]
        slow = asyncio.create_task(made.calls("ada"))
        await until(lambda: world.counts()["exchange_requests"] > before, "the exchange began", PATIENCE)
        assert "bob-secret" in await made.calls("bob")
        assert not slow.done(), "others wait for nothing"
        world.control(delay_exchange=0)
        await slow
        await made.acts("ada")


async def test_without_tokens_of_callers_an_entry_that_exchanges_them_cannot_be_used(tmp_path: Path) -> None:
    exchange = {"issuer": "https://login.example", "client_id": "gateway", "client_secret": "secret"}
    config = tmp_path / "mcp.json"
    entries = {"desk": {"url": "https://mcp.example/mcp", "auth": {"exchange": exchange}}}
    config.write_text(json.dumps({"mcpServers": entries}))
    done = await command("doctor", "--config", config, "--database", tmp_path / "catalog.db")
    assert "only callers of a gateway over HTTP have one" in " ".join(done.out.split())


async def test_the_company_s_assertion_of_who_calls_is_exchanged_at_the_server_s_own_authorization_server(
    managed: Managed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    company, elsewhere = managed.company, managed.elsewhere
    before = company.counts()["assertions"]
    async with gateway(company, tmp_path, elsewhere.server_url, managed.auth()) as made:
        await asyncio.gather(*(made.acts(who) for who in ("ada", "bob") for _ in range(3)))
        assert company.counts()["assertions"] - before == elsewhere.counts()["asserted"] == 2
        elsewhere.control(expire_all=True)
        assert "ada-secret" in await made.calls("ada"), "an assertion is used once, so another one is got"
        assert elsewhere.counts()["replays"] == 0
        tokens = set(tokens_at(elsewhere))
        own = {made.token("ada"), made.token("bob")}
        assert not tokens & own
        assert not own & set(elsewhere.secrets()), "no other authorization server got a caller's token"
        assert len(tokens) >= 3
    log = capfd.readouterr().err
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    for secret in (*own, *tokens, *company.secrets(), *elsewhere.secrets()):
        assert secret not in log
        assert secret.encode() not in kept


@pytest.mark.parametrize(
    ("switches", "why"),
    [
        ({"fail_exchange": 503}, "answers with HTTP status 503"),
        ({"exchange_returns": "other"}, "gave no identity assertion (ID-JAG)"),
        ({"exchange_audience": "https://third.example"}, "refused (invalid_grant)"),
        ({"assertion_client": "another"}, "refused (invalid_grant)"),
    ],
)
async def test_an_assertion_that_is_not_given_or_not_taken_is_a_clear_state(
    managed: Managed, tmp_path: Path, switches: dict[str, Any], why: str
) -> None:
    async with gateway(managed.company, tmp_path, managed.elsewhere.server_url, managed.auth()) as made:
        await made.acts("bob")
        managed.company.control(**switches)
        await made.is_told("ada", why)
        assert "bob-secret" in await made.calls("bob")


def tokens_at(world: LoginWorld) -> list[str]:
    """The tokens that have come to a server."""
    told = world.http.get(world.server_url.replace("/mcp", "/control")).raise_for_status().json()
    return [one for one in told["tokens"] if one]
