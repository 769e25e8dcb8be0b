"""What known clients do with every call of theirs, and that none of it reaches a tool or another conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as types
import pytest
from mcp import Client

from mcp_optimizer.gateway.reply_text import ShownByConversation
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import ServerOptions, build_server
from tests.unit.catalogs import RecordingPool, gateway_over, mcp_tool, running

GEMINI, CODEX, CLAUDE = "gemini-cli-mcp-client", "codex-mcp-client", "claude-code"
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
LAB = running(
    "lab",
    mcp_tool("now", "The time", inputSchema=CLOSED),
    mcp_tool("add", "Add an item to the list", {"item": {"type": "string"}}),
    mcp_tool("step", "Do a step", {"wait_for_previous": {"type": "boolean"}}),
    mcp_tool("steps", "Do steps", inputSchema={"type": "object", "allOf": [{"required": ["wait_for_previous"]}]}),
)


@asynccontextmanager
async def served(name: str, *, transparent: bool = False) -> AsyncIterator[tuple[Client, RecordingPool]]:
    """A client with this name."""
    pool = RecordingPool()
    options = ServerOptions(transparent=transparent)
    server = build_server(await gateway_over(LAB, pool=pool), "1.2.3", Relay(pool, dict), options)
    info = types.Implementation(name=name, version="1")
    async with Client(server, mode="legacy", client_info=info) as client:
        yield client, pool


def sent(pool: RecordingPool) -> Any:
    return pool.calls[-1][2].get("arguments")


@pytest.mark.parametrize("transparent", [False, True])
async def test_an_argument_that_gemini_adds_to_every_call_does_not_reach_a_tool(transparent: bool) -> None:
    async with served(GEMINI, transparent=transparent) as (client, pool):
        for name, given, expected in (
            ("now", {"wait_for_previous": False}, {}),
            ("add", {"item": "x", "wait_for_previous": True}, {"item": "x"}),
            ("step", {"wait_for_previous": True}, {"wait_for_previous": True}),
            ("steps", {"wait_for_previous": True}, {"wait_for_previous": True}),
        ):
            result = await client.call_tool(name, given)
            assert not result.is_error, result.content
            assert sent(pool) == expected


@pytest.mark.parametrize("parameters", [{}, None, "{}", {"wait_for_previous": True}, '{"wait_for_previous": true}'])
async def test_nor_does_it_through_call_tool(parameters: Any) -> None:
    async with served(GEMINI) as (client, pool):
        asked = {"tool_name": "now", "parameters": parameters, "wait_for_previous": False}
        result = await client.call_tool("call_tool", asked)
        assert not result.is_error, result.content
        assert sent(pool) == {}
        asked = {"tool_name": "step", "parameters": {"wait_for_previous": True}, "wait_for_previous": False}
        await client.call_tool("call_tool", asked)
        assert sent(pool) == {"wait_for_previous": True}


@pytest.mark.parametrize("tool", ["find_tool", "list_tools"])
async def test_our_own_tools_do_not_see_it_either(tool: str) -> None:
    async with served(GEMINI) as (client, _pool):
        result = await client.call_tool(tool, {"tool_description": "the time", "wait_for_previous": [{}] * 1_000})
        assert not result.is_error, result.content


@pytest.mark.parametrize("name", [CODEX, CLAUDE, "somebody", ""])
async def test_of_any_other_client_it_is_an_argument_like_others(name: str) -> None:
    async with served(name) as (client, pool):
        result = await client.call_tool("now", {"wait_for_previous": False})
        assert result.is_error
        await client.call_tool("add", {"item": "x", "wait_for_previous": False})
        assert sent(pool) == {"item": "x", "wait_for_previous": False}


async def found(client: Client, meta: Any = None) -> str:
    """The text of a search, made twice, so that something was shown before."""
    for _ in range(2):
        result = await client.call_tool("find_tool", {"tool_description": "the time now"}, meta=meta)
    return cast("types.TextContent", result.content[0]).text


async def test_codex_says_which_conversation_a_search_is_of() -> None:
    async with served(CODEX) as (client, _pool):
        first, sub_agent = {"threadId": "one", "sessionId": "s"}, {"threadId": "two", "sessionId": "s"}
        assert "shown earlier" in await found(client, first)
        text = await client.call_tool("find_tool", {"tool_description": "the time now"}, meta=cast("Any", sub_agent))
        assert "shown earlier" not in str(text.content)


@pytest.mark.parametrize("name", [CLAUDE, GEMINI, "opencode", "somebody"])
async def test_clients_that_tell_nothing_are_shown_everything_again(name: str) -> None:
    async with served(name) as (client, _pool):
        assert "shown earlier" not in await found(client, {"threadId": "one", "claudecode/toolUseId": "t"})


@pytest.mark.parametrize("thread", [None, "", 7, True, ["one"], {"id": "one"}, "x" * 201, "x" * 100_000])
async def test_what_is_no_id_tells_nothing(thread: Any) -> None:
    async with served(CODEX) as (client, _pool):
        assert "shown earlier" not in await found(client, {"threadId": thread})
        assert "shown earlier" not in await found(client)


@pytest.mark.slow
def test_a_hundred_thousand_conversations_are_not_remembered() -> None:
    seen = ShownByConversation()
    for number in range(100_000):
        seen.of(str(number)).add("tool")
    assert "tool" not in seen.of("0")
    assert "tool" in seen.of("99999")
