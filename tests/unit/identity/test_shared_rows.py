"""What several gateways on one database share of logins and exchanges: each thing is finished, or renewed, once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest

from mcp_optimizer.config.serverfile.parser import given_servers
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.domain.caller import Principal
from mcp_optimizer.errors import CatalogError
from mcp_optimizer.identity.attempts import Attempts, Awaited
from mcp_optimizer.identity.exchange import Exchanges, TokenExchange
from mcp_optimizer.identity.login import Login
from mcp_optimizer.identity.logins import Logins
from mcp_optimizer.identity.oauth_client import Attempt, ClientId, NotAwaited, Provider, Tokens
from mcp_optimizer.identity.server_login import ServerLogin
from mcp_optimizer.identity.store import InVault, LoginStore
from mcp_optimizer.identity.vault import Vault
from mcp_optimizer.identity.web import Web
from tests.unit.identity.vaults import opened

ISSUER = "https://login.example"
KEY = {"MCP_OPTIMIZER_SECRET_KEY": "A" * 43 + "="}
ADA = Principal("token:ada", "corp:ada", claims={"exp": time.time() + 86_400})
BOB = Principal("token:bob", "corp:bob", claims={"exp": time.time() + 86_400})


def _itself(vault: Vault) -> Vault:
    return vault


@asynccontextmanager
async def gateways(place: Path | str) -> AsyncIterator[list[InVault]]:
    """The rows of three gateways on one database."""
    async with AsyncExitStack() as stack:
        yield [InVault(partial(_itself, await stack.enter_async_context(opened(place, KEY)))) for _ in range(3)]


def entry(**auth: Any) -> ServerSpec:
    [spec] = given_servers({"crm": {"url": "https://mcp.example/mcp", "auth": {"principal": "caller", **auth}}}, {})
    assert not spec.problem, spec.problem
    return spec


def awaited(principal: Principal = ADA, since: float = 0.0) -> Awaited:
    provider = Provider(ISSUER, f"{ISSUER}/authorize", f"{ISSUER}/token", "https://mcp.example/mcp", ("read",))
    attempt = Attempt(provider, ClientId("me"), "https://gateway.example/logins/callback", ("read", "write"))
    return Awaited("crm", "crm\nplace", attempt, lambda _: None, principal, since or time.time())


async def test_a_login_that_began_at_one_gateway_is_finished_once_at_another(place: Path | str) -> None:
    async with gateways(place) as rows:
        first, second, third = map(Attempts, rows)
        await first.add(begun := awaited())
        state = begun.attempt.state
        found = await second.taken(state)
        assert found.attempt == begun.attempt
        assert (found.server, found.place, found.principal) == ("crm", "crm\nplace", Principal("token:ada", "corp:ada"))
        for other in (first, third):
            with pytest.raises(NotAwaited):
                await other.taken(state)


async def test_a_login_that_took_too_long_or_that_nobody_began_is_finished_nowhere(place: Path | str) -> None:
    async with gateways(place) as rows:
        first, second, _ = map(Attempts, rows)
        await first.add(old := awaited(since=time.time() - 1_000))
        for state in (old.attempt.state, "x", ""):
            with pytest.raises(NotAwaited):
                await second.taken(state)


async def test_a_database_holds_no_state_and_no_verifier_of_a_login_in_the_clear(tmp_path: Path) -> None:
    async with gateways(tmp_path / "catalog.db") as rows:
        await Attempts(rows[0]).add(begun := awaited())
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
        assert begun.attempt.state.encode() not in kept
        assert begun.attempt.verifier.encode() not in kept


class Counting:
    """An authorization server that counts, and may be told when to answer."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def web(self) -> Web:
        return Web(httpx2.MockTransport(self._answered))

    async def _answered(self, request: httpx2.Request) -> httpx2.Response:
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        self.forms.append(form)
        await self.may_answer.wait()
        kind = "urn:ietf:params:oauth:token-type:access_token"
        said = {"access_token": f"at{len(self.forms)}", "token_type": "Bearer", "expires_in": 600}
        more = {"issued_token_type": kind, "refresh_token": f"rt{len(self.forms)}"}

        async def body() -> AsyncIterator[bytes]:
            yield json.dumps({**said, **more}).encode()

        return httpx2.Response(200, content=body())


EXCHANGE = {"token_url": f"{ISSUER}/token", "client_id": "gateway", "client_secret": "secret"}


@asynccontextmanager
async def exchanging(
    rows: list[InVault], provider: Counting
) -> AsyncIterator[Callable[[Principal], list[TokenExchange]]]:
    """What each gateway exchanges for a caller."""
    every = [Exchanges(provider.web, shared=one) for one in rows]

    def of(principal: Principal) -> list[TokenExchange]:
        for one in every:
            one.note(principal, f"the token of {principal.name}")
        return [one.of(entry(exchange=EXCHANGE), principal) for one in every]

    try:
        yield of
    finally:
        await asyncio.gather(*(one.close() for one in every))


@pytest.mark.slow
async def test_one_gateway_exchanges_a_token_for_all_and_no_caller_gets_what_another_did(place: Path | str) -> None:
    provider = Counting()
    async with gateways(place) as rows, exchanging(rows, provider) as of:
        got = await asyncio.gather(*(one.headers() for one in of(ADA)))
        assert {one["authorization"] for one in got} == {"Bearer at1"}
        assert [one["authorization"] for one in [await each.headers() for each in of(BOB)]] == ["Bearer at2"] * 3
        assert [form["subject_token"] for form in provider.forms] == ["the token of corp:ada", "the token of corp:bob"]


async def test_a_token_that_the_server_refuses_is_exchanged_again_once_for_all(place: Path | str) -> None:
    provider = Counting()
    async with gateways(place) as rows, exchanging(rows, provider) as of:
        every = of(ADA)
        sent = [await one.headers() for one in every]
        again = await asyncio.gather(*(one.refused(401, "", old) for one, old in zip(every, sent, strict=True)))
        assert again == [True] * 3
        assert {(await one.headers())["authorization"] for one in every} == {"Bearer at2"}
        assert len(provider.forms) == 2


async def test_without_the_database_each_gateway_exchanges_for_itself() -> None:
    class Away(InVault):
        async def read(self, kind: str, name: str) -> bytes | None:
            raise CatalogError("it is away")

    provider = Counting()

    def never() -> Any:
        raise CatalogError("it is away")

    async with exchanging([Away(never), Away(never)], provider) as of:
        got = [(await one.headers())["authorization"] for one in of(ADA)]
        assert got == ["Bearer at1", "Bearer at2"]


async def test_what_was_exchanged_is_in_the_database_neither_in_the_clear_nor_for_another_entry(tmp_path: Path) -> None:
    provider = Counting()
    async with gateways(tmp_path / "catalog.db") as rows, exchanging(rows, provider) as of:
        await of(ADA)[0].headers()
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
        assert b"at1" not in kept
        assert b"the token of" not in kept
        other = Exchanges(provider.web, shared=rows[1])
        other.note(ADA, "the token of corp:ada")
        changed = other.of(entry(exchange={**EXCHANGE, "scopes": ["crm.write"]}), ADA)
        assert (await changed.headers())["authorization"] == "Bearer at2"
        await other.close()


async def test_what_was_exchanged_for_which_callers_can_be_shown_without_a_token(place: Path | str) -> None:
    provider = Counting()
    async with gateways(place) as rows, exchanging(rows, provider) as of:
        for principal in (ADA, BOB):
            await of(principal)[0].headers()
        logins = Logins(rows[1])
        found = await logins.statuses_of_callers([entry(exchange=EXCHANGE)], "corp:a*")
        assert [(one.server, one.caller, one.state) for one in found] == [("crm", "corp:ada", "exchanged")]
        assert "at1" not in repr(found)
        assert len(await logins.statuses_of_callers([entry(exchange=EXCHANGE)], "*")) == 2
        await logins.close()


class Late(InVault):
    """The rows of a gateway whose claim comes just after another gateway has done its work."""

    def __init__(self, vault: Vault, others_work: Callable[[], Any]) -> None:
        super().__init__(lambda: vault)
        self._work = others_work
        self._is_done = False

    async def claim(self, kind: str, name: str, until_ms: int, now_ms: int) -> bool:
        if not self._is_done:
            self._is_done = True
            await self._work()
        return await super().claim(kind, name, until_ms, now_ms)


async def test_a_refresh_token_is_sent_once_though_another_gateway_refreshed_just_before_the_claim(
    place: Path | str,
) -> None:
    provider, spec = Counting(), entry(type="oauth")
    tokens = Tokens("at0", "rt0", expires_at=1.0)
    old = Login(ISSUER, f"{ISSUER}/token", "https://mcp.example/mcp", ClientId("me"), tokens=tokens)

    def login(rows: InVault) -> ServerLogin:
        return ServerLogin(spec, LoginStore(spec, "token:ada", rows), provider.web, never)

    def never() -> Any:
        raise AssertionError("no login is offered")

    async with gateways(place) as rows, opened(place, KEY) as vault:
        first = login(rows[0])
        await first.keep(old)
        second = login(Late(vault, first.headers))
        assert await second.headers() == {"authorization": "Bearer at1"}
        assert [form["refresh_token"] for form in provider.forms] == ["rt0"]
        # Nothing is claimed any more, so a third gateway need not wait.
        assert await LoginStore(spec, "token:ada", rows[2]).claim()
        await asyncio.gather(first.close(), second.close())
