"""Calls of modern clients: one JSON body, or a stream from the first notification on; they end with their client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.server.connection import Connection
from mcp_types import JSONRPCRequest
from starlette.requests import Request
from starlette.types import Message

from mcp_optimizer.serving.modern_lane import ModernLane
from tests.e2e.raw_clients import MODERN, answer_of, message
from tests.unit.serving.lane_world import Client, events, served
from tests.waiting import until

DONE = [{"type": "text", "text": "done"}]
SDK = {"Content-Type": "application/json; charset=utf-8"}
"""The SDK's own way: the lane takes only what says no more than that it is JSON. It escapes what is not ASCII."""
LEFT: Message = {"type": "http.disconnect"}


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, 1, MODERN)


def routed(tool: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def modern(client: Client, tool: str) -> Client:
    other = Client(client.http)
    other.headers = routed(tool)
    return other


async def test_an_answer_that_comes_at_once_is_what_the_sdk_sends() -> None:
    async with served() as (_, client):
        here = await modern(client, "echo").post(called("echo", text="é"))
        there = await modern(client, "echo").post(called("echo", text="é"), **SDK)
        assert (here.status_code, here.headers["content-type"]) == (200, "application/json")
        assert ("é" in here.text, "é" in there.text) == (True, False)
        assert here.json() == there.json()


async def test_a_call_that_tells_its_client_something_becomes_a_stream() -> None:
    async with served() as (_, client):
        headers = routed("tell")
        async with client.http.stream("POST", "/mcp", json=called("tell", times=3), headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream"
            *told, answer = [event async for event in events(response)]
        assert [notice["params"]["progress"] for notice in told] == [0, 1, 2]
        assert answer["result"]["content"] == DONE


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_call_ends_with_its_client(has_begun: bool) -> None:
    async with served() as (tools, client):
        tool = "tell" if has_begun else "wait"
        posting = asyncio.create_task(modern(client, tool).post(called(tool, times=10**9)))
        await tools.began.get()
        posting.cancel()
        await until(lambda: tools.ended == [f"{tool} was cancelled"])


async def test_a_call_that_takes_longer_is_answered_when_it_is_done() -> None:
    async with served() as (tools, client):
        posting = asyncio.create_task(modern(client, "wait").post(called("wait")))
        await tools.began.get()
        asyncio.get_running_loop().call_later(0.6, tools.go_on.set)
        assert (await posting).json()["result"]["content"] == DONE


WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"name": 7}, {"Mcp-Name": "7"}),
    ({"name": "echo", "arguments": [1]}, {}),
    ({"name": "echo", "arguments": "all"}, {}),
    ({"name": "other"}, {}),
    ({"name": "echo"}, {"Mcp-Method": "tools/list"}),
    ({"name": "echo"}, {"MCP-Protocol-Version": "2099-01-01"}),
    ({"name": "echo", "_meta": {"io.modelcontextprotocol/protocolVersion": 7}}, {}),
    ({"name": "echo", "_meta": {"io.modelcontextprotocol/clientInfo": "me"}}, {}),
    ({"name": "echo", "_meta": {"progressToken": []}}, {}),
    ({"name": "fail"}, {"Mcp-Name": "fail"}),
]


@pytest.mark.parametrize(("params", "headers"), WRONG, ids=str)
async def test_what_is_wrong_gets_the_status_and_the_error_that_the_sdk_has_for_it(
    params: dict[str, Any], headers: dict[str, str]
) -> None:
    body = message("tools/call", params, 1, MODERN)
    async with served() as (_, client):
        sender = modern(client, "echo")
        here = await sender.post(body, **headers)
        there = await sender.post(body, **headers, **SDK)
        assert (here.status_code, answer_of(here)) == (there.status_code, answer_of(there))


async def test_a_header_that_is_there_twice_is_refused() -> None:
    async with served() as (tools, client):
        headers = [*routed("echo").items(), ("Mcp-Name", "other")]
        refused = await client.http.post("/mcp", content=json.dumps(called("echo")), headers=headers)
        assert (refused.status_code, tools.began.empty()) == (400, True)


class Wire:
    """The two ends of one HTTP request, in memory."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return LEFT

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def test_the_client_of_a_silent_call_is_sent_something_now_and_then_and_is_noticed_when_it_leaves() -> None:
    ended = asyncio.Event()

    async def handle(_context: Any, _connection: Connection, _params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    lane, wire = ModernLane(handle, lambda _name: None, moment=0.01, ping=0.02), Wire()
    fields = {name.lower().encode(): value.encode() for name, value in routed("echo").items()}
    request = Request({"type": "http", "headers": list(fields.items())})
    call = lane.takes(request, JSONRPCRequest(**called("echo")), fields)
    assert call is not None
    responding = asyncio.create_task(call.respond(request.scope, wire.receive, wire.send))
    await until(lambda: len(wire.sent) >= 4)
    assert wire.sent[0]["headers"][0] == (b"content-type", b"text/event-stream")
    assert {sent["body"] for sent in wire.sent[1:]} == {b": ping\r\n\r\n"}
    wire.left.set()
    await responding
    assert ended.is_set()
