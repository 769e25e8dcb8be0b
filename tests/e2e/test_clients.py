"""The official SDK's client in front of the real gateway: over stdio and HTTP, in both protocol eras."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import answer_of
from tests.e2e.running import gateway_at, over_stdio, said_in, until_found
from tests.servers.plain import PNG


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one"), "two": plain_server("two", "--tools", 12)})


Connect = Callable[[], AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["legacy", "auto"])
def connect(request: pytest.FixtureRequest, transport: str, config: Path) -> Connect:
    """Returns a function that opens a client. A test opens it itself: the SDK must enter and exit in the same task."""
    mode = str(request.param)

    @asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        if transport == "stdio":
            async with over_stdio(config, mode=mode) as client:
                yield client
        else:
            async with gateway_at(config) as address, Client(address, mode=mode) as client:
                yield client

    return connected


async def test_a_client_lists_finds_and_calls(connect: Connect) -> None:
    async with connect() as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["find_tool", "call_tool", "list_tools", "read_result"]
        answer = await until_found(client, "two perform action on a thing", "two_action_2")
        assert answer["token_metrics"]["tokens_saved"] > 0
        result = await client.call_tool("call_tool", {"tool_name": "two_action_2", "parameters": {"id": "7"}})
        assert json.loads(text(result)) == {"server": "two", "tool": "two_action_2", "arguments": {"id": "7"}}
        assert (result.meta or {})["mcp-optimizer/tool"] == {"name": "two_action_2", "server": "two"}


async def test_an_image_what_a_result_says_and_meta_come_through(connect: Connect) -> None:
    async with connect() as client:
        await until_found(client, "draw a picture", "one__picture")
        drawn = await client.call_tool("call_tool", {"tool_name": "one__picture", "parameters": {}})
        [image] = drawn.content
        assert isinstance(image, types.ImageContent)
        assert (image.data, image.mime_type) == (PNG, "image/png")
        facts = await client.call_tool("call_tool", {"tool_name": "one__facts", "parameters": {}})
        # Its text says all of it, and nobody knows what this client gives its model.
        assert facts.structured_content == {"rows": [{"id": 1}], "total": 1}
        assert said_in(facts) == {"rows": [{"id": 1}], "total": 1}
        assert (facts.meta or {})["upstream"] == "kept"


async def test_errors_of_the_tool_and_of_its_server_come_through(connect: Connect) -> None:
    async with connect() as client:
        await until_found(client, "answer with a tool error", "one__fail")
        failed = await client.call_tool("call_tool", {"tool_name": "one__fail", "parameters": {}})
        assert failed.is_error
        assert text(failed) == "it did not work"
        with pytest.raises(MCPError) as refused:
            await client.call_tool("call_tool", {"tool_name": "one__refuse", "parameters": {}})
        assert (refused.value.code, refused.value.message) == (-32055, "I will not")
        assert refused.value.error.data == {"why": "asked to"}


async def test_wrong_requests_are_told_what_to_do(connect: Connect) -> None:
    async with connect() as client:
        await until_found(client, "two perform action on a thing", "two_action_2")
        await until_found(client, "answer with a tool error", "one__fail")
        unknown = await client.call_tool("call_tool", {"tool_name": "two_acton_2", "parameters": {}})
        assert unknown.is_error
        assert "two_action_2" in text(unknown)
        invalid = await client.call_tool("call_tool", {"tool_name": "one__echo", "parameters": {"value": 5}})
        assert invalid.is_error
        assert "value: 5 is not of type" in text(invalid)
        assert '"properties":{"value":{"type":"string"}}' in text(invalid)
        nothing = await client.call_tool("find_tool", {})
        assert nothing.is_error
        assert "tool_description is required" in text(nothing)


async def test_a_call_is_understood_in_every_shape_models_use(config: Path) -> None:
    shapes: list[dict[str, Any]] = [
        {"tool_name": "one__echo", "parameters": {"value": "x"}},
        {"tool_name": "one.echo", "parameters": {"value": "x"}},
        {"tool_name": "echo", "server_name": "one", "parameters": {"value": "x"}},
        {"tool_name": "one__echo", "parameters": {"parameters": {"value": "x"}}},
        {"tool_name": "one__echo", "parameters": '{"value": "x"}'},
        {"tool_name": "one__echo", "value": "x"},
    ]
    async with over_stdio(config) as client:
        await until_found(client, "say something back", "one__echo")
        for arguments in shapes:
            result = await client.call_tool("call_tool", arguments)
            assert json.loads(text(result)) == {"server": "one", "tool": "echo", "arguments": {"value": "x"}}, arguments


@pytest.mark.promise("newer-fields-kept")
async def test_unknown_fields_of_definitions_and_results_survive_on_the_wire(config: Path) -> None:
    async with gateway_at(config) as address, Client(address) as client, httpx2.AsyncClient() as http:
        await until_found(client, "structured facts", "one__facts")
        whole = await client.call_tool("find_tool", {"tool_description": "structured facts", "detail": "full"})
        [facts] = [tool for tool in said_in(whole)["tools"] if tool["name"] == "one__facts"]
        assert facts["futureField"] == {"kept": True}
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "call_tool",
                "arguments": {"tool_name": "one__facts", "parameters": {}},
                "_meta": {
                    types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
                    types.CLIENT_INFO_META_KEY: {"name": "raw", "version": "1"},
                    types.CLIENT_CAPABILITIES_META_KEY: {},
                },
            },
        }
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "call_tool",
        }
        response = await http.post(address, json=request, headers=headers)
    result = answer_of(response)["result"]
    assert result["futureField"] == [1]
    assert result["_meta"]["upstream"] == "kept"
    assert result["resultType"] == "complete"


@pytest.mark.promise("host-and-origin-checked")
async def test_health_ready_and_foreign_hosts_over_http(config: Path) -> None:
    async with gateway_at(config) as address, Client(address) as client, httpx2.AsyncClient() as http:
        base = address.removesuffix("/mcp")
        assert (await http.get(f"{base}/health")).json()["status"] == "ok"
        await until_found(client, "draw a picture", "one__picture")
        await until_found(client, "draw a picture", "two__picture")
        ready = await http.get(f"{base}/ready")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "state": "ready", "servers": {"running": 2}})
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await http.post(address, json=ping, headers={"Host": "evil.example"})).status_code == 421
        assert (await http.post(address, json=ping, headers={"Origin": "https://evil.example"})).status_code == 403


def text(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text
