"""A token is for the address that its client used: a call that waits elsewhere is continued with it all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from mcp_optimizer.serving.peers import HEADER
from tests.e2e.raw_clients import ACCEPT, HELLO, message
from tests.e2e.test_calls_anywhere import ASKING, Asked
from tests.e2e.three_gateways import Cluster, Gateway, three_gateways
from tests.postgres import Postgres
from tests.servers.login_world import LoginWorld, issuer_world
from tests.warm import warm_server


@pytest.fixture(scope="module")
def world() -> Iterator[LoginWorld]:
    with issuer_world() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, world: LoginWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("tokens")
    config, settings = folder / "mcp.json", folder / "settings.toml"
    asking = warm_server(ASKING, "--era", "legacy")
    config.write_text(json.dumps({"mcpServers": {"old": asking}}))
    issuer = f'[[token_issuers]]\nname = "corp"\nissuer = "{world.issuer}"\n'
    settings.write_text(f"require_auth = true\n{issuer}")
    with three_gateways(config, postgres.new_database(), "--settings", settings) as cluster:
        yield cluster


def client_of(http: httpx2.AsyncClient, world: LoginWorld, gateway: Gateway, name: str) -> Asked:
    """Somebody with a token for the address of this gateway."""
    return Asked(http, world.sign(aud=gateway.address, sub=name))


async def test_an_answer_is_passed_on_with_a_token_for_the_gateway_that_got_it(
    cluster: Cluster, world: LoginWorld
) -> None:
    first, second, third = cluster.gateways
    async with httpx2.AsyncClient(timeout=30) as http:
        state = (await client_of(http, world, first, "ada").call(first))["requestState"]
        bob = client_of(http, world, second, "bob")
        assert (await bob.answer(second, state)).startswith("No call waits for these answers")
        assert await client_of(http, world, second, "ada").answer(second, state) == "Answered: accept"
        gone = await client_of(http, world, third, "ada").answer(third, state)
        assert gone.startswith("No call waits for these answers")


async def test_a_token_for_one_gateway_is_worth_nothing_at_another_that_its_client_asks_itself(
    cluster: Cluster, world: LoginWorld
) -> None:
    first, second, _ = cluster.gateways
    forged = {HEADER: "x" * 200}
    async with httpx2.AsyncClient(timeout=30) as http:
        token = world.sign(aud=second.address, sub="ada")
        for more in ({}, forged):
            headers = {**ACCEPT, "Authorization": f"Bearer {token}", **more}
            said = await http.post(first.address, json=message("initialize", HELLO, 0), headers=headers)
            assert said.status_code == 401
