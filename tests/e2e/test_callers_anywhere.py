"""Each caller acts at a server as itself, whichever gateway has its request, and whichever gateway is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.e2e.callers_anywhere import CALLERS, OPTIONS, Exchanged, Identity, OwnLogins, configured, office, secret_key
from tests.e2e.three_gateways import three_gateways
from tests.postgres import Postgres
from tests.servers.login_world import LoginWorld, issuer_world, login_world, running

pytestmark = pytest.mark.slow


@contextmanager
def own_logins() -> Iterator[Identity]:
    with login_world(seconds=600, server="tests.servers.personal") as world:
        yield OwnLogins(world)


@contextmanager
def exchanged() -> Iterator[Identity]:
    with issuer_world(seconds=600) as issuer, running("tests.servers.personal", "--issuer", issuer.issuer) as server:
        yield Exchanged(LoginWorld(server, issuer.issuer, issuer.http))


@pytest.mark.promise("callers-share-nothing")
@pytest.mark.parametrize("made", [own_logins, exchanged])
async def test_nothing_of_one_caller_reaches_another_through_three_gateways_that_are_killed(
    made: Callable[[], AbstractContextManager[Identity]], postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.new_database()
    with made() as identity:
        config, settings = await configured(identity, tmp_path, database)
        # A token of a caller works once for each server, as some providers have it: gateways share what it was
        # exchanged for.
        await asyncio.to_thread(identity.world.control, exchange_once=True)
        more = (*OPTIONS, "--settings", settings)
        with three_gateways(config, database, *more, environment=secret_key()) as cluster:
            async with office(cluster, identity) as people:
                await asyncio.to_thread(identity.world.control, exchange_once=False)
                await people.all_hear()
                for gateway in cluster.gateways:
                    await people.tokens_end()
                    await people.kill(gateway)
                await people.all_hear()
            assert people.mixed_up() == []
            assert people.lost_logins == 0
            assert identity.world.counts()["reuses"] == 0
            # Where the database takes longer than a second, a gateway gets a token for itself.
            assert min(people.renewed) == len(CALLERS), people.renewed
