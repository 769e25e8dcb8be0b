"""Requests of legacy sessions: one JSON body when they have nothing else to tell, else a stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_optimizer.limits import Limits
from tests.e2e.raw_clients import answer_of
from tests.unit.serving.http_world import Client, called, served
from tests.waiting import until

DONE = [{"type": "text", "text": "done"}]


async def is_alive(client: Client) -> bool:
    """Whether the session still answers, twice with one id."""
    answers = [(await client.call("echo", "alive")).json() for _ in range(2)]
    return all(answer["result"]["content"] == DONE for answer in answers)


async def test_an_answer_that_comes_at_once_is_one_json_body() -> None:
    async with served() as (_, client):
        response = await client.call("echo", 7)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["mcp-session-id"] == client.headers["Mcp-Session-Id"]
        assert response.json() == {"jsonrpc": "2.0", "id": 7, "result": {"content": DONE, "isError": False}}


async def test_a_header_that_nobody_reads_may_be_there_twice() -> None:
    async with served() as (_, client):
        headers = [*client.headers.items(), ("Via", "one"), ("Via", "two"), ("Content-Type", "application/json")]
        response = await client.http.post("/mcp", content=json.dumps(called("echo")), headers=headers)
        assert response.headers["content-type"] == "application/json"


async def test_a_call_that_tells_its_client_something_becomes_a_stream() -> None:
    async with served() as (_, client), client.streamed("tell", times=3) as stream:
        *told, answer = [event async for event in stream]
        assert [notice["params"]["progress"] for notice in told] == [0, 1, 2]
        assert answer["result"]["content"] == DONE


async def test_a_call_that_asks_its_client_gets_the_answer() -> None:
    async with served() as (_, client), client.streamed("ask") as stream:
        question = await anext(stream)
        assert question["method"] == "elicitation/create"
        result = {"action": "accept", "content": {"name": "me"}}
        assert (await client.post({"jsonrpc": "2.0", "id": question["id"], "result": result})).status_code == 202
        assert (await anext(stream))["result"]["content"][0]["text"] == "accept: {'name': 'me'}"


async def test_a_call_that_takes_longer_can_be_resumed_by_whoever_lost_its_stream() -> None:
    async with served() as (tools, client):
        async with client.streamed("wait") as stream:
            first = await anext(stream)
            assert isinstance(first, str), "the id of an empty event"
        tools.go_on.set()
        await until(lambda: tools.ended == ["wait was done"])
        async with client.resumed(first) as stream:
            assert (await anext(stream))["result"]["content"] == DONE
        assert await is_alive(client)


async def test_a_stream_that_the_server_gives_back_is_continued_where_it_ended() -> None:
    async with served() as (tools, client):
        async with client.streamed("release") as stream:
            [first] = [event async for event in stream]
        async with client.resumed(first) as stream:
            tools.go_on.set()
            assert isinstance(await anext(stream), str)
            assert (await anext(stream))["result"]["content"] == DONE


@pytest.mark.parametrize("number", [5, "five", "5"])
async def test_a_cancelled_call_ends_at_once_and_says_so(number: Any) -> None:
    async with served() as (tools, client):
        calling = asyncio.create_task(client.call("wait", number))
        assert await tools.began.get() == "wait"
        await client.cancel(number)
        answer = (await calling).json()
        assert (answer["id"], answer["error"]["code"]) == (number, -32800)
        assert tools.ended == ["wait was cancelled"]
        assert await is_alive(client)


async def test_a_call_is_cancelled_after_it_became_a_stream_too() -> None:
    async with served() as (tools, client):
        async with client.streamed("wait", 5) as stream:
            await anext(stream)
            await client.cancel(5)
            assert (await anext(stream))["error"]["code"] == -32800
        assert tools.ended == ["wait was cancelled"]


async def test_a_call_ends_with_its_session() -> None:
    async with served() as (tools, client):
        calling = asyncio.create_task(client.call("wait"))
        await tools.began.get()
        assert (await client.http.delete("/mcp", headers=client.headers)).status_code == 200
        assert (await calling).json()["error"] == {"code": -32000, "message": "Connection closed"}
        assert tools.ended == ["wait was cancelled"]
        assert (await client.call("echo")).status_code == 404


async def test_an_id_that_is_in_use_is_refused_and_the_call_that_has_it_goes_on() -> None:
    async with served() as (tools, client):
        calling = asyncio.create_task(client.call("wait", 5))
        await tools.began.get()
        again = await client.call("echo", 5)
        assert (again.status_code, "still in progress" in again.text) == (400, True)
        tools.go_on.set()
        assert answer_of(await calling)["result"]["content"] == DONE
        assert (await client.call("echo", 5)).json()["result"]["content"] == DONE


async def test_a_call_goes_on_without_its_client_and_what_it_tells_blocks_nobody() -> None:
    async with served() as (tools, client):
        calling = asyncio.create_task(client.call("wait", 5))
        await tools.began.get()
        calling.cancel()
        async with client.streamed("tell", 6, times=5_000) as stream:
            await anext(stream)
        await until(lambda: "tell was done" in tools.ended)
        tools.go_on.set()
        await until(lambda: "wait was done" in tools.ended)
        await until(lambda: is_alive(client))
        assert (await client.call("echo", 5)).json()["result"]["content"] == DONE


async def test_a_bug_costs_only_its_own_call() -> None:
    async with served() as (_, client):
        assert "error" in (await client.call("fail")).json()
        assert await is_alive(client)


HOSTILE: list[Any] = [
    {"name": 7},
    {"name": ["echo"]},
    {"name": "echo", "arguments": [1]},
    {"name": "echo", "arguments": "all"},
    {"name": "echo", "_meta": 7},
    {"name": "echo", "_meta": {"progressToken": {}}},
    {"arguments": {}},
    {},
]


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("params", HOSTILE, ids=str)
async def test_parameters_that_are_wrong_get_an_error_and_cost_nothing_else(params: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with served() as (tools, client):
        response = await client.post(body, **{"Content-Type": "application/json; charset=utf-8"})
        assert (response.status_code, response.json()["id"]) == (200, 1)
        assert response.json()["error"] == {"code": -32602, "message": "Invalid request parameters", "data": ""}
        assert tools.began.empty()
        assert await is_alive(client)


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": "x" * 10_000}, 406),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/jsonlines"}, 415),
        ({"Mcp-Session-Id": "another"}, 404),
        ({"MCP-Protocol-Version": "1999-01-01"}, 400),
    ],
    ids=str,
)
async def test_requests_with_other_headers_are_refused_as_before(headers: dict[str, str], status: int) -> None:
    async with served() as (tools, client):
        assert (await client.post(called("echo"), **headers)).status_code == status
        assert tools.began.empty()


async def test_a_call_before_the_handshake_is_refused() -> None:
    async with served() as (tools, client):
        client.headers.pop("Mcp-Session-Id")
        refused = await client.call("echo")
        assert (refused.status_code, tools.began.empty()) == (400, True)


async def test_a_session_is_idle_again_after_its_calls() -> None:
    async with served(Limits(sessions=1)) as (_, client):
        assert (await client.call("echo")).status_code == 200
        other = Client(client.http)
        with pytest.raises(KeyError):
            await other.open()
        assert (await client.http.delete("/mcp", headers=client.headers)).status_code == 200
        await other.open()
        assert (await other.call("echo")).json()["result"]["content"] == DONE
