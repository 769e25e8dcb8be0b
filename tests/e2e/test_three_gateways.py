"""Three gateways behind HAProxy without stickiness, as clients see them when nothing needs a gateway of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Literal

import mcp_types as types
import pytest
from mcp import Client

from tests.cluster import NAMES
from tests.conftest import plain_server
from tests.e2e.three_gateways import Cluster, three_gateways
from tests.postgres import Postgres, ask
from tests.waiting import until


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def cluster(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = tmp_path_factory.mktemp("three") / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": plain_server("one")}}))
    with three_gateways(config, database) as cluster:
        yield cluster


async def call(client: Client) -> bool:
    """Whether a call worked."""
    result = await client.call_tool("call_tool", {"tool_name": "picture", "parameters": {}})
    return not result.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_calls_through_all_of_them_and_the_accounts_have_every_call_once_in_one_conversation(
    cluster: Cluster, database: str, mode: Literal["auto", "legacy"]
) -> None:
    info = types.Implementation(name=mode, version="1")
    async with Client(cluster.address, mode=mode, client_info=info) as client:
        assert [await call(client) for _ in range(9)] == [True] * 9
    counted = "SELECT client, count(*), count(DISTINCT session) FROM event WHERE tool = 'picture' GROUP BY client"
    await until(lambda: (mode, "9", "1") in ask(database, counted))
    assert cluster.up() == set(NAMES)


async def test_a_killed_gateway_is_left_out_and_has_its_turn_again_when_it_is_back(cluster: Cluster) -> None:
    first = cluster.gateways[0]
    async with Client(cluster.address, mode="auto") as client:
        first.kill()
        assert [await call(client) for _ in range(6)] == [True] * 6
        await asyncio.to_thread(cluster.restart, first)
        assert first.name in cluster.up()
        assert [await call(client) for _ in range(3)] == [True] * 3
