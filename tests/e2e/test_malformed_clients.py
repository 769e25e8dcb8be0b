"""Clients that break every rule: each message is answered or dropped, and the next valid request is served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import LEGACY, MODERN, HttpClient, StdioClient, encoded, http_client, message, stdio_client
from tests.e2e.running import gateway_at

RawClient = StdioClient | HttpClient
Connect = Callable[[], AbstractAsyncContextManager[RawClient]]
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS = -32700, -32600, -32602
HEADER_MISMATCH = -32020


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[LEGACY, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(transport: str, era: str, config: Path) -> Connect:
    @asynccontextmanager
    async def connected() -> AsyncIterator[RawClient]:
        if transport == "stdio":
            async with stdio_client(config, "--database", "none", era=era) as client:
                yield client
        else:
            async with (
                gateway_at(config, "--database", "none") as address,
                http_client(address, era) as client,
            ):
                yield client

    return connected


def call(era: str, params: dict[str, Any], number: Any = 1) -> dict[str, Any]:
    return message("tools/call", params, number, era)


def raw(era: str, text: bytes, name: str = "echo") -> bytes:
    """A call of a tool with exactly this text as its value."""
    arguments = {"tool_name": name, "parameters": {"value": "VALUE"}}
    return encoded(call(era, {"name": "call_tool", "arguments": arguments})).replace(b'"VALUE"', text)


def with_id(era: str, number: bytes) -> bytes:
    return encoded(message("tools/list", {}, "NUMBER", era)).replace(b'"NUMBER"', number)


def not_messages(era: str) -> dict[str, tuple[bytes, int]]:
    """Texts that are not valid MCP messages, each with the error code of its response."""
    return {
        "no JSON": (b"hello", PARSE_ERROR),
        "not UTF-8": (raw(era, b'"\xff\xfe"'), PARSE_ERROR),
        "half a surrogate pair": (raw(era, b'"\\ud800"'), PARSE_ERROR),
        "100,000 brackets": (raw(era, b"[" * 100_000 + b"]" * 100_000), PARSE_ERROR),
        "900 brackets": (raw(era, b"[" * 900 + b"]" * 900), PARSE_ERROR),
        "5,000 digits": (raw(era, b"9" * 5_000), PARSE_ERROR),
        "a number without end": (raw(era, b"1e999"), PARSE_ERROR),
        "not a number": (raw(era, b"NaN"), PARSE_ERROR),
        "a million values": (raw(era, b"[" + b"0," * 1_000_000 + b"0]"), PARSE_ERROR),
        "a number": (b"5", INVALID_REQUEST),
        "an empty batch": (b"[]", INVALID_REQUEST),
        "a batch": (b"[" + encoded(message("tools/list", {}, 1, era)) + b"]", INVALID_REQUEST),
        "an empty object": (b"{}", INVALID_REQUEST),
        "another JSON-RPC": (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
        "a method that is a number": (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', INVALID_REQUEST),
        "an id that is a list": (with_id(era, b"[1]"), INVALID_REQUEST),
        "an id that is an object": (with_id(era, b"{}"), INVALID_REQUEST),
        "an id that is true": (with_id(era, b"true"), INVALID_REQUEST),
        "an id that is null": (with_id(era, b"null"), INVALID_REQUEST),
        "an id with a fraction": (with_id(era, b"1.5"), INVALID_REQUEST),
        "an id of 400 digits": (with_id(era, b"9" * 400), INVALID_REQUEST),
        "an id of 300,000 characters": (with_id(era, b'"' + b"x" * 300_000 + b'"'), INVALID_REQUEST),
        "params that are a list": (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}',
            INVALID_PARAMS,
        ),
        "params that are text": (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": "x"}', INVALID_PARAMS),
    }


@pytest.mark.promise("malformed-dropped")
async def test_what_is_no_message_is_refused_with_the_protocols_error(connect: Connect, era: str) -> None:
    async with connect() as client:
        if era == MODERN and isinstance(client, StdioClient):
            # The first request decides the era of a connection.
            await client.ask("tools/list")
        answered = {}
        for name, (body, _) in not_messages(era).items():
            answer = await client.exchange(body)
            answered[name] = answer.get("error", {}).get("code")
        assert answered == {name: code for name, (_, code) in not_messages(era).items()}
        assert "tools" in (await client.ask("tools/list"))["result"]


def wrong_params(era: str) -> dict[str, dict[str, Any]]:
    """Requests whose parameters the protocol does not allow."""
    echo = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "x"}}}
    wrong: dict[str, dict[str, Any]] = {
        "arguments that are a list": call(era, {**echo, "arguments": [1]}),
        "arguments that are text": call(era, {**echo, "arguments": "x"}),
        "arguments that are true": call(era, {**echo, "arguments": True}),
        "a name that is a list": call(era, {**echo, "name": [1]}),
        "a name of 300,000 characters": call(era, {**echo, "name": "x" * 300_000}),
        "a progress token that is a list": call(era, {**echo, "_meta": {"progressToken": [1]}}),
        "a cursor that is a number": message("prompts/list", {"cursor": 5}, 1, era),
        "a cursor of 5,000 digits": message("prompts/list", {"cursor": "9" * 5_000}, 1, era),
        "a prompt that is an object": message("prompts/get", {"name": {}}, 1, era),
        "a URI of 300,000 characters": message("resources/read", {"uri": "x" * 300_000}, 1, era),
        "a reference that is text": message("completion/complete", {"ref": "x", "argument": {}}, 1, era),
    }
    metas: tuple[Any, ...] = ("text", [1], 5)
    if era == LEGACY:
        wrong |= {f"_meta that is {meta!r}": call(era, echo) for meta in metas}
        for meta in metas:
            wrong[f"_meta that is {meta!r}"]["params"]["_meta"] = meta
        wrong["a log level of no kind"] = message("logging/setLevel", {"level": "loudest"}, 1, era)
        wrong["a client without a name"] = message("initialize", {"protocolVersion": 5, "capabilities": []}, 1, era)
    else:
        client = "io.modelcontextprotocol/clientInfo"
        capabilities = "io.modelcontextprotocol/clientCapabilities"
        huge = {"name": "x" * 10**6, "version": "1"}
        uris = {"notifications": {"resourceSubscriptions": [1, {}]}}
        many = {"notifications": {"resourceSubscriptions": [f"x://{number}" for number in range(1_001)]}}
        wrong |= {
            "a client that is a list": call(era, {**echo, "_meta": {client: [1]}}),
            "a client of a million characters": call(era, {**echo, "_meta": {client: huge}}),
            "capabilities that are a list": call(era, {**echo, "_meta": {capabilities: []}}),
            "a state that is a number": call(era, {**echo, "requestState": 5}),
            "answers that are text": call(era, {**echo, "inputResponses": "x"}),
            "URIs that are none": message("subscriptions/listen", uris, 1, era),
            "more URIs than a client may watch": message("subscriptions/listen", many, 1, era),
        }
    return wrong


async def test_parameters_of_the_wrong_kind_are_refused_with_the_protocols_error(connect: Connect, era: str) -> None:
    async with connect() as client:
        answered = {}
        for name, request in wrong_params(era).items():
            answer = await client.exchange(request)
            answered[name] = answer.get("error", {}).get("code")
        # A value that a header must repeat but cannot contain is refused as a header mismatch.
        mismatches = {HEADER_MISMATCH} if era == MODERN and isinstance(client, HttpClient) else set()
        wrong = {name: code for name, code in answered.items() if code not in {INVALID_PARAMS, *mismatches}}
        assert wrong == {}
        assert "tools" in (await client.ask("tools/list"))["result"]


async def test_no_arguments_may_be_written_in_any_way(connect: Connect, era: str) -> None:
    nothing: tuple[Any, ...] = (None, [], "")
    async with connect() as client:
        for arguments in nothing:
            answer = await client.exchange(call(era, {"name": "list_tools", "arguments": arguments}))
            assert json.loads(answer["result"]["content"][0]["text"])["tools"] is not None, arguments


async def test_arguments_of_our_own_tools_are_checked_and_a_model_is_told(connect: Connect, era: str) -> None:
    numbers = {"1e400", "NaN"}
    async with connect() as client:
        wrong = [
            ("find_tool", {"tool_description": "x" * 300_000}, "may have 10,000 characters"),
            ("find_tool", {"tool_description": [1]}, "tool_description is required"),
            ("find_tool", {"tool_description": "say", "limit": True}, "limit must be a whole number"),
            ("find_tool", {"tool_description": "say", "limit": {}}, "limit must be a whole number"),
            ("find_tool", {"tool_description": "say", "detail": "x" * 5_000}, "detail must be one of"),
            ("list_tools", {"offset": "9" * 5_000}, "offset must be a whole number"),
            ("list_tools", {"offset": -1}, "offset"),
            ("call_tool", {"tool_name": "x" * 300_000}, "may have 10,000 characters"),
            ("call_tool", {"tool_name": {}}, "tool_name is required"),
            ("read_result", {"result_id": "r1", "offset": []}, "offset must be a whole number"),
        ]
        for name, arguments, told in wrong:
            answer = await client.exchange(call(era, {"name": name, "arguments": arguments}))
            text = answer["result"]["content"][0]["text"]
            assert answer["result"]["isError"], (name, arguments)
            assert told in text, (name, arguments)
            assert len(text) < 1_000
        for number in numbers:
            body = encoded(call(era, {"name": "list_tools", "arguments": {"offset": "N"}}))
            answer = await client.exchange(body.replace(b'"N"', number.encode()))
            assert answer["error"]["code"] == PARSE_ERROR


async def test_notifications_and_answers_of_every_kind_are_dropped(connect: Connect, era: str) -> None:
    values: tuple[Any, ...] = ([1], "x", 5, {"a": 1}, "9" * 5_000, True, None)
    methods = ("cancelled", "progress", "roots/list_changed", "initialized", "nonsense")
    async with connect() as client:
        await client.ask("tools/list")
        for value in values:
            for method in methods:
                for params in (value, {"requestId": value, "progressToken": value, "progress": value, "_meta": value}):
                    await dropped(client, {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})
            await dropped(client, {"jsonrpc": "2.0", "id": 77, "result": value})
            await dropped(client, {"jsonrpc": "2.0", "id": 77, "error": value})
        assert "tools" in (await client.ask("tools/list"))["result"]


async def dropped(client: RawClient, value: Any) -> None:
    if isinstance(client, StdioClient):
        await client.send(value)
    else:
        assert (await client.post(value)).status_code in (202, 400)


async def test_two_requests_with_one_id_are_not_mixed_up(connect: Connect, era: str) -> None:
    slow = {"name": "call_tool", "arguments": {"tool_name": "sleep", "parameters": {"seconds": 2}}}
    async with connect() as client:
        await until_called(client, era)
        if isinstance(client, StdioClient):
            await client.send(call(era, slow, 5))
            second = await client.exchange(message("tools/list", {}, 5, era))
            assert second["error"]["code"] == INVALID_REQUEST
            first = await client.receive()
        else:
            waiting = asyncio.create_task(client.exchange(call(era, slow, 5)))
            await asyncio.sleep(0.3)
            second = await client.exchange(message("tools/list", {}, "5" if era == LEGACY else 5, era))
            # In the modern era each request is independent.
            assert ("error" in second) == (era == LEGACY)
            first = await waiting
        assert first["id"] == 5
        assert json.loads(first["result"]["content"][0]["text"])["tool"] == "sleep"


async def until_called(client: RawClient, era: str) -> None:
    """Wait until the test server is up."""
    echo = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "x"}}}
    async with asyncio.timeout(20):
        while (await client.exchange(call(era, echo, "up")))["result"].get("isError"):
            await asyncio.sleep(0.05)


async def test_an_unknown_method_is_not_found(connect: Connect, era: str) -> None:
    async with connect() as client:
        assert (await client.ask("foo/bar"))["error"]["code"] == -32601
        answer = await client.ask("f" * 300_000)
        assert answer["error"]["code"] == INVALID_REQUEST
        assert len(json.dumps(answer)) < 1_000


async def test_a_large_request_reaches_its_server_whole(connect: Connect, era: str) -> None:
    value = "some words, äöü and \n lines " * 60_000
    async with connect() as client:
        await until_called(client, era)
        arguments = {"tool_name": "echo", "parameters": {"value": value}, "select": "length(arguments.value)"}
        answer = await client.exchange(call(era, {"name": "call_tool", "arguments": arguments}))
        assert answer["result"]["content"][0]["text"] == str(len(value))
