"""Legacy sessions at three gateways without stickiness: any of them serves a session that began at another."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.history import StoredUse
from mcp_optimizer.domain.caller import ANYONE
from mcp_optimizer.runtime.signatures import Signatures
from mcp_optimizer.serving.session_ids import Introduction, SessionIds
from tests.conftest import plain_server
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, HttpClient, answer_of, http_client, message
from tests.e2e.three_gateways import Cluster, three_gateways
from tests.postgres import Postgres, ask
from tests.waiting import until

GIVING = Path(__file__).parents[1] / "servers" / "giving.py"


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def cluster(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = tmp_path_factory.mktemp("sessions") / "mcp.json"
    giving = {"command": sys.executable, "args": [str(GIVING)]}
    config.write_text(json.dumps({"mcpServers": {"one": plain_server("one"), "giving": giving}}))
    with three_gateways(config, database, "--max-tokens", 500) as cluster:
        yield cluster


async def called(client: Client) -> bool:
    result = await client.call_tool("call_tool", {"tool_name": "picture", "parameters": {}})
    return not result.is_error


@asynccontextmanager
async def session_at(address: str) -> AsyncIterator[HttpClient]:
    async with http_client(address, LEGACY) as client:
        yield client


def moved(client: HttpClient, address: str) -> HttpClient:
    """The same session, asked for at another place."""
    other = HttpClient(address, LEGACY, client.http)
    other.headers = client.headers
    return other


async def status(client: HttpClient, **headers: str) -> int:
    return (await client.post(message("tools/list"), **headers)).status_code


async def test_an_sdk_client_calls_and_lists_through_all_gateways_in_one_session(cluster: Cluster) -> None:
    async with Client(cluster.address, mode="legacy") as client:
        assert [await called(client) for _ in range(9)] == [True] * 9
        lists = [await client.list_tools(cache_mode="refresh") for _ in range(3)]
        assert lists[0].tools == lists[1].tools == lists[2].tools


async def test_a_session_outlives_the_death_and_the_restart_of_the_gateway_where_it_began(cluster: Cluster) -> None:
    first, second, _ = cluster.gateways
    async with session_at(first.address) as client:
        await asyncio.to_thread(first.kill)
        assert await status(moved(client, second.address)) == 200
        await asyncio.to_thread(cluster.restart, first)
        assert await status(client) == 200


async def test_another_gateway_knows_what_the_client_said_of_itself(cluster: Cluster, database: str) -> None:
    async with session_at(cluster.gateways[0].address) as client:
        arguments = {"tool_name": "picture", "parameters": {}}
        there = moved(client, cluster.gateways[1].address)
        answer = await there.ask("tools/call", {"name": "call_tool", "arguments": arguments})
        assert "result" in answer
    counted = "SELECT count(*) FROM event WHERE client = 'raw' AND tool = 'picture'"
    await until(lambda: ask(database, counted) == [("1",)])


async def test_requests_that_arrive_together_open_a_session_once(cluster: Cluster) -> None:
    async with session_at(cluster.gateways[0].address) as client:
        there = moved(client, cluster.gateways[2].address)
        answers = await asyncio.gather(*(there.ask("tools/list", number=number) for number in range(20)))
        assert [answer["id"] for answer in answers] == list(range(20))
        assert all("result" in answer for answer in answers)


async def test_the_rest_of_a_cut_result_is_read_at_any_gateway_and_in_another_session(cluster: Cluster) -> None:
    async with Client(cluster.address, mode="legacy") as client:
        cut = await client.call_tool("call_tool", {"tool_name": "huge", "parameters": {"size": 40_000}})
        about: dict[str, Any] = (cut.meta or {})["mcp-optimizer/result"]
        pages = [await client.call_tool("read_result", {"result_id": about["resultId"]}) for _ in range(3)]
    async with Client(cluster.address, mode="legacy") as again:
        pages += [await again.call_tool("read_result", {"result_id": about["resultId"]}) for _ in range(3)]
    assert not any(page.is_error for page in pages)
    assert len({page.model_dump_json(include={"content"}) for page in pages}) == 1


async def test_a_session_that_its_client_ended_is_over_at_every_gateway_also_where_it_was_open(
    cluster: Cluster,
) -> None:
    first, second, third = cluster.gateways
    async with session_at(first.address) as client:
        assert await status(moved(client, third.address)) == 200
        ended = await client.http.delete(second.address, headers=client.headers)
        assert ended.status_code == 200
        assert await status(moved(client, second.address)) == 404

        async def is_over() -> bool:
            return [await status(moved(client, one.address)) for one in (first, third)] == [404, 404]

        await until(is_over)
        refused = await moved(client, third.address).post(message("tools/list"))
        assert answer_of(refused)["error"]["message"].startswith("Session not found")


async def test_an_id_that_no_gateway_signed_is_refused(cluster: Cluster) -> None:
    async with session_at(cluster.gateways[0].address) as client:
        good = client.headers["Mcp-Session-Id"]
        mark, body, signature = good.split(".")
        forged = [
            good[:-1],
            good[1:],
            f"{mark}.{body}.{signature[::-1]}",
            f"{mark}.{body}.",
            f"{mark}.{body[:-4]}AAAA.{signature}",
            f"{mark}..{signature}",
            "s1." + "A" * 2_000 + "." + signature,
            "s1." + "A" * 20_000 + "." + signature,
            "0123456789abcdef" * 2,
            ".",
        ]
        there = moved(client, cluster.gateways[1].address)
        for session in forged:
            assert await status(there, **{"Mcp-Session-Id": session}) == 404
        assert await status(there) == 200


async def test_an_id_of_another_installation_and_one_that_is_too_old_are_refused(
    cluster: Cluster, database: str
) -> None:
    said = Introduction.of(HELLO)
    opened = await open_database(database)
    try:
        key = await StoredUse(opened).key()
    finally:
        await opened.close()

    async def ours() -> bytes:
        return key

    year = 365 * 86_400
    foreign = await SessionIds(Signatures()).new(said, ANYONE.id)
    old = await SessionIds(Signatures(ours), lambda: 1_700_000_000 - 3 * year).new(said, ANYONE.id)
    other = await SessionIds(Signatures(ours)).new(said, "key:somebody else")
    fresh = await SessionIds(Signatures(ours)).new(said, ANYONE.id)
    async with httpx2.AsyncClient(timeout=30) as http:
        client = HttpClient(cluster.address, LEGACY, http)
        client.headers = {**ACCEPT, "MCP-Protocol-Version": LEGACY}
        for session, expected in ((foreign, 404), (old, 404), (other, 404), (fresh, 200)):
            assert await status(client, **{"Mcp-Session-Id": session}) == expected


async def test_a_lost_stream_is_continued_at_any_gateway_for_as_long_as_the_one_that_sent_it_lives(
    cluster: Cluster,
) -> None:
    first, second, _ = cluster.gateways
    async with session_at(first.address) as client:
        response = await client.post(message("tools/list"))
        event = next(line.removeprefix("id: ") for line in response.text.splitlines() if line.startswith("id: "))
        headers = {**client.headers, "Accept": "text/event-stream", "Last-Event-ID": event}
        async with client.http.stream("GET", second.address, headers=headers) as there:
            assert there.status_code == 200
            assert there.headers["content-type"].startswith("text/event-stream")
        await asyncio.to_thread(first.kill)
        refused = await client.http.get(second.address, headers=headers)
        assert refused.status_code == 409
        assert "has ended" in answer_of(refused)["error"]["message"]
        await asyncio.to_thread(cluster.restart, first)
