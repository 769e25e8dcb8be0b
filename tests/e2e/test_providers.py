"""The library's adapters for model providers: what they make has the shapes of the providers' own SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter

from mcp_optimizer import AnthropicTools, OpenAITools, Optimizer

ANTHROPIC_TOOLS = 2 + 85


@asynccontextmanager
async def demo(**options: Any) -> AsyncIterator[Optimizer]:
    async with Optimizer.from_config(demo=True, database="none", encoder="none", **options) as optimizer:
        yield optimizer


def checked(shape: Any, value: Any) -> Any:
    """The value, which must have exactly the keys and types of this shape."""
    TypeAdapter(shape).validate_python(value)
    known = getattr(shape, "__annotations__", None)
    assert known is None or set(value) <= set(known)
    return value


async def test_anthropic_gets_all_tools_deferred_and_references_to_those_that_fit() -> None:
    types = pytest.importorskip("anthropic.types")
    async with demo() as optimizer:
        adapter = AnthropicTools(optimizer)
        tools = adapter.tools()
        for tool in tools:
            checked(types.ToolParam, tool)
        assert len(tools) == ANTHROPIC_TOOLS
        assert [tool["name"] for tool in tools if not tool.get("defer_loading")] == ["find_tool", "read_result"]
        assert adapter.tools() == tools
        asked = types.ToolUseBlock(
            id="t1", name="find_tool", input={"tool_description": "list the boards"}, type="tool_use", caller=None
        )
        found = checked(types.ToolResultBlockParam, await adapter.answer(asked))
        for block in found["content"]:
            checked(types.ToolReferenceBlockParam, block)
        assert {"type": "tool_reference", "tool_name": "list_boards"} in found["content"]
        called = {"type": "tool_use", "id": "t2", "name": "list_boards", "input": {}}
        result = checked(types.ToolResultBlockParam, await adapter.answer(called))
        assert "Web Shop" in result["content"][0]["text"]
        assert (result["tool_use_id"], result["is_error"]) == ("t2", False)
        # A client of the MCP server never sees such a block.
        assert "tool_reference" not in str(await optimizer.call("list_boards"))


async def test_openai_gets_a_search_of_ours_and_the_definitions_that_it_returns() -> None:
    types = pytest.importorskip("openai.types.responses")
    async with demo() as optimizer:
        adapter = OpenAITools(optimizer)
        search, reading = adapter.tools()
        checked(types.ToolSearchToolParam, search)
        checked(types.FunctionToolParam, reading)
        asked = types.ResponseToolSearchCall(
            id="i1",
            call_id="c1",
            arguments={"tool_description": "list the boards"},
            execution="client",
            status="completed",
            type="tool_search_call",
        )
        found = await adapter.answer(asked)
        checked(types.ResponseToolSearchOutputItemParamParam, found)
        assert found is not None
        for tool in found["tools"]:
            checked(types.FunctionToolParam, tool)
        assert "list_boards" in [tool["name"] for tool in found["tools"]]
        called = {"type": "function_call", "call_id": "c2", "name": "list_boards", "arguments": "{}"}
        result = await adapter.answer(called)
        assert result is not None
        assert (result["type"], result["call_id"]) == ("function_call_output", "c2")
        assert "Web Shop" in result["output"][0]["text"]
        assert await adapter.answer({"type": "message", "content": []}) is None
        assert await adapter.answer({**asked.model_dump(), "execution": "server"}) is None


@pytest.mark.parametrize("given", [None, [], "", "{", 7, {}, {"tool_description": 7}, {"tool_description": " "}])
async def test_what_a_model_gets_wrong_is_an_answer_and_no_failure(given: Any) -> None:
    async with demo(servers="web") as optimizer:
        anthropic, openai = AnthropicTools(optimizer), OpenAITools(optimizer)
        anthropic.tools()
        answer = await anthropic.answer({"id": "t", "name": "find_tool", "input": given})
        assert answer["is_error"]
        call = {"type": "tool_search_call", "execution": "client", "call_id": "c", "arguments": given}
        assert (await openai.answer(call) or {})["tools"] == []
        for name in ("no_such_tool", "read_result"):
            assert (await anthropic.answer({"id": "t", "name": name, "input": given}))["is_error"]
            failed = {"type": "function_call", "call_id": "c", "name": name, "arguments": given}
            assert isinstance((await openai.answer(failed) or {})["output"], str)


async def test_a_tool_that_was_not_offered_is_not_referred_to_and_a_denied_one_not_offered() -> None:
    rules = [{"effect": "deny", "tool": "delete_*"}]
    async with demo(rules=rules) as optimizer:
        adapter = AnthropicTools(optimizer)
        asked = {"id": "t", "name": "find_tool", "input": {"tool_description": "list the boards"}}
        assert isinstance((await adapter.answer(asked))["content"], str)
        assert not [tool["name"] for tool in adapter.tools() if tool["name"].startswith("delete_")]
