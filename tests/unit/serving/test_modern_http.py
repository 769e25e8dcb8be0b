"""Calls of modern clients: one JSON body, or a stream from the first notification on; they end with their client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import JSONRPCRequest
from starlette.requests import Request
from starlette.types import Message

from mcp_optimizer.serving.modern_clients import ModernClients
from mcp_optimizer.serving.modern_http import ModernHttp
from tests.e2e.raw_clients import ACCEPT, MODERN, message
from tests.unit.serving.http_world import Client, events, served
from tests.waiting import until

DONE = [{"type": "text", "text": "done"}]
LEFT: Message = {"type": "http.disconnect"}


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, 1, MODERN)


def routed(tool: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def modern(client: Client, tool: str) -> Client:
    other = Client(client.http)
    other.headers = routed(tool)
    return other


async def test_an_answer_that_comes_at_once_is_one_json_body() -> None:
    async with served() as (_, client):
        response = await modern(client, "echo").post(called("echo", text="é"))
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        assert response.json()["result"]["content"] == [{"type": "text", "text": "é"}]


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


WRONG: list[tuple[dict[str, Any], dict[str, str], int, int]] = [
    ({"name": 7}, {"Mcp-Name": "7"}, 400, types.HEADER_MISMATCH),
    ({"name": "echo", "arguments": [1]}, {}, 400, types.INVALID_PARAMS),
    ({"name": "echo", "arguments": "all"}, {}, 400, types.INVALID_PARAMS),
    ({"name": "other"}, {}, 400, types.HEADER_MISMATCH),
    ({"name": "echo"}, {"Mcp-Method": "tools/list"}, 400, types.HEADER_MISMATCH),
    ({"name": "echo"}, {"MCP-Protocol-Version": "2099-01-01"}, 400, types.HEADER_MISMATCH),
    ({"name": "echo", "_meta": {types.PROTOCOL_VERSION_META_KEY: 7}}, {}, 400, types.HEADER_MISMATCH),
    ({"name": "echo", "_meta": {types.CLIENT_INFO_META_KEY: "me"}}, {}, 400, types.INVALID_PARAMS),
    ({"name": "echo", "_meta": {"progressToken": []}}, {}, 400, types.INVALID_PARAMS),
    ({"name": "fail"}, {"Mcp-Name": "fail"}, 200, types.INTERNAL_ERROR),
]


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(("params", "headers", "status", "code"), WRONG, ids=str)
async def test_what_is_wrong_gets_the_status_and_the_error_of_the_protocol(
    params: dict[str, Any], headers: dict[str, str], status: int, code: int
) -> None:
    body = message("tools/call", params, 1, MODERN)
    async with served() as (_, client):
        sender = modern(client, "echo")
        for _ in range(2):
            answer = await sender.post(body, **headers)
            assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (status, 1, code)


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, {}, 202),
        ({"jsonrpc": "2.0", "method": "x"}, {"MCP-Protocol-Version": "2099-01-01"}, 400),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, {}, 400),
        (called("echo"), {"Accept": "application/json"}, 406),
        (called("no/such"), {"Mcp-Name": "no/such", "Mcp-Param-X": "y"}, 200),
    ],
    ids=str,
)
async def test_other_messages_are_acknowledged_or_refused(content: Any, headers: dict[str, str], status: int) -> None:
    async with served() as (_, client):
        sender = modern(client, "echo")
        assert (await sender.post(content, **headers)).status_code == status
        assert (await client.http.get("/mcp", headers=sender.headers)).status_code == 405


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

    async def wait(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        del ctx, call_next
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    server: Server[Any] = Server("test", version="1")
    server.middleware.append(wait)
    http, wire = ModernHttp(moment=0.01, ping=0.02), Wire()
    http.serve(ModernClients(server, {}))
    fields = {name.lower().encode(): value.encode() for name, value in {**routed("echo"), **ACCEPT}.items()}
    request = Request({"type": "http", "method": "POST", "headers": list(fields.items())})
    posting = http.post(request, JSONRPCRequest(**called("echo")), fields, wire.receive, wire.send)
    responding = asyncio.create_task(posting)
    await until(lambda: len(wire.sent) >= 4)
    assert wire.sent[0]["headers"][0] == (b"content-type", b"text/event-stream")
    assert {sent["body"] for sent in wire.sent[1:]} == {b": ping\r\n\r\n"}
    wire.left.set()
    await responding
    assert ended.is_set()
