"""A gateway dies while it gets a token for a caller: another takes over, no login is lost, and it only takes longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.e2e.callers_anywhere import OPTIONS, Exchanged, Identity, OwnLogins, Seat, Sent, configured, secret_key
from tests.e2e.raw_clients import MODERN, HttpClient
from tests.e2e.three_gateways import Cluster, Gateway, three_gateways
from tests.postgres import Postgres
from tests.servers.login_world import LoginWorld, issuer_world, login_world, running
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE = 120
"""Seconds for an answer: what a dead gateway has begun is left to it for up to 30, and the machine may be busy."""


@asynccontextmanager
async def seat(identity: Identity, who: str, gateway: Gateway) -> AsyncIterator[Seat]:
    """A client of this caller that asks this gateway, past HAProxy."""
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        client = HttpClient(gateway.address, MODERN, http)
        client.headers["Authorization"] = f"Bearer {identity.bearer(who)}"
        yield Seat(who, MODERN, client)


async def called(one: Seat) -> str:
    answer = await one.ask(Sent.call("write_page"))
    assert not one.mixed_up
    return answer


async def until_called(one: Seat) -> None:
    async def is_served() -> bool:
        return f"{one.who}-secret" in await called(one)

    await until(is_served, f"{one.who} is served; last: {one.latest}", PATIENCE)


async def dies_while_it_asks(world: LoginWorld, gateway: Gateway, asking: Seat, asked: str) -> None:
    """Kill a gateway after it has asked the authorization server for a caller, and before that has answered."""
    before = world.counts()[asked]
    lost = asyncio.create_task(called(asking))
    await until(lambda: world.counts()[asked] > before, "the gateway asks", PATIENCE)
    await asyncio.to_thread(gateway.kill)
    assert await lost == ""


async def test_an_exchange_that_a_dead_gateway_began_is_made_by_another_for_all_calls_that_wait(
    postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.new_database()
    with issuer_world(seconds=600) as issuer, running("tests.servers.personal", "--issuer", issuer.issuer) as server:
        identity = Exchanged(LoginWorld(server, issuer.issuer, issuer.http))
        config, settings = await configured(identity, tmp_path, database)
        with three_gateways(config, database, *OPTIONS, "--settings", settings, environment=secret_key()) as cluster:
            first, second, third = cluster.gateways
            async with (
                seat(identity, "ada", first) as dying,
                seat(identity, "ada", second) as ada,
                seat(identity, "ada", third) as too,
                seat(identity, "bob", second) as bob,
            ):
                await until_called(bob)
                await asyncio.to_thread(issuer.control, delay_exchange=3_600)
                await dies_while_it_asks(issuer, first, dying, "exchange_requests")
                waiting = [asyncio.create_task(until_called(one)) for one in (ada, too)]
                # Another caller need not wait.
                assert "bob-secret" in await called(bob)
                await asyncio.to_thread(issuer.control, delay_exchange=0)
                await asyncio.gather(*waiting)
                # Bob's, the one whose outcome nobody got, and one for the two that are left; or one for each of them,
                # where the database was silent for a second.
                assert identity.renewals() in (3, 4)


@asynccontextmanager
async def logged_in(postgres: Postgres, folder: Path, world: LoginWorld) -> AsyncIterator[tuple[Identity, Cluster]]:
    """Ada and Bob, and gateways of which the first two have served both of them."""
    database, identity = postgres.new_database(), OwnLogins(world)
    config, settings = await configured(identity, folder, database)
    with three_gateways(config, database, *OPTIONS, "--settings", settings, environment=secret_key()) as cluster:
        for who in ("ada", "bob"):
            await identity.begin(who, cluster)
            for gateway in cluster.gateways[:2]:
                async with seat(identity, who, gateway) as one:
                    await until_called(one)
        yield identity, cluster


@pytest.mark.parametrize("is_answered", [False, True], ids=["before it is looked at", "after it was granted"])
async def test_a_refresh_that_a_dead_gateway_began_is_made_by_another(
    postgres: Postgres, tmp_path: Path, is_answered: bool
) -> None:
    # Where refresh tokens work once, the answer that died with the gateway had the only one that works.
    with login_world(seconds=600, server="tests.servers.personal", rotate=not is_answered) as world:
        async with logged_in(postgres, tmp_path, world) as (identity, cluster):
            first, second, _ = cluster.gateways
            async with seat(identity, "ada", first) as dying, seat(identity, "ada", second) as ada:
                await asyncio.to_thread(world.control, expire_all=True, delay_refresh=3_600)
                await dies_while_it_asks(world, first, dying, "refresh_requests")
                if not is_answered:
                    await asyncio.to_thread(world.control, fail_refresh=503, delay_refresh=0)
                    await until(lambda: world.counts()["put_off"] >= 1, "the first request is put off", PATIENCE)
                    await asyncio.to_thread(world.control, fail_refresh=0)
                await asyncio.to_thread(world.control, delay_refresh=0)
                await until_called(ada)
                assert not ada.is_logged_out
                assert world.counts()["reuses"] == 0
                async with seat(identity, "bob", second) as bob:
                    await until_called(bob)
