"""The gateway's own replies are limited: what is too long is abbreviated, marked so, and can be read completely."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from mcp_optimizer.catalog.tool_forms import Detail, ToolForms
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.kept_results import KeptResults
from mcp_optimizer.domain.naming import alias
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.result_store import ResultStore
from mcp_optimizer.serving.own_tools import FindToolResponse, find_response
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import build_server
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import RecordingPool, down, live_catalog, mcp_tool, python_stubs, running

COUNTER = TokenCounter()
MOST = DEFAULT_LIMITS.reply_tokens
VALUES = [f"v{number}" for number in range(90_000)]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": "The innermost. " * 50}
    for level in range(depth):
        schema = {"type": "object", "properties": {f"level_{level}": schema}, "description": "Some words of it. " * 50}
    return schema


DOUBLED = {
    f"d{at}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{at + 1}"} for side in ("left", "right")}}
    for at in range(40)
}

HUGE: dict[str, McpTool] = {
    "an enum": mcp_tool("pick_thing", "Pick a thing", {"thing": {"enum": VALUES}, "n": {"type": "integer"}}),
    "numbers": mcp_tool("pick_thing", "Pick a thing", {"thing": {"type": "integer", "enum": list(range(100_000))}}),
    "properties": mcp_tool(
        "pick_thing",
        "Pick a thing",
        {f"p{at}": {"type": "string", "description": f"Part {at}."} for at in range(9_000)},
    ),
    "required": McpTool(
        name="pick_thing",
        description="Pick a thing",
        inputSchema={
            "type": "object",
            "properties": {value: {} for value in VALUES[:20_000]},
            "required": VALUES[:20_000],
        },
    ),
    "undeclared": McpTool(
        name="pick_thing", description="Pick a thing", inputSchema={"type": "object", "required": VALUES[:50_000]}
    ),
    "branches": mcp_tool("pick_thing", "Pick a thing", {"a": {"anyOf": [{"const": one} for one in VALUES[:30_000]]}}),
    "a default": mcp_tool("pick_thing", "Pick a thing", {"a": {"default": VALUES}}),
    "a depth": mcp_tool("pick_thing", "Pick a thing", {"a": nested(45)}),
    "words": mcp_tool("pick_thing", "Pick a thing. " * 7_000, {"a": {"description": "Pick it, e.g. now. " * 10_000}}),
    "no words": mcp_tool("pick_thing", "x" * 90_000, {"a": {"description": "☃" * 90_000}}),
    "names": mcp_tool("pick_thing", "Pick a thing", {"x" * 30_000 + str(at): {} for at in range(30)}),
    "an output": mcp_tool("pick_thing", "Pick a thing", outputSchema={"type": "object", "required": VALUES}),
    "references": McpTool(
        name="pick_thing",
        description="Pick a thing",
        inputSchema={"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": DOUBLED},
    ),
}


class Served:
    """The gateway's own tools, as a client calls them."""

    def __init__(self, client: Client, gateway: Gateway) -> None:
        self.client = client
        self.gateway = gateway

    async def text(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = await self.client.call_tool(name, dict(arguments))
        return "".join(block.text for block in result.content if isinstance(block, types.TextContent))

    async def found(self, detail: str, **more: Any) -> FindToolResponse:
        asked = {"tool_description": "pick a thing", "detail": detail, **more}
        text = await self.text("find_tool", asked)
        assert COUNTER.count_tokens(text) <= self.gateway.limits.reply_tokens
        response = find_response(await self.gateway.search("pick a thing", "", more.get("limit"), Detail(detail)))
        sent = json.dumps(response.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=False)
        assert COUNTER.count_tokens(sent) <= self.gateway.limits.reply_tokens
        return response


@asynccontextmanager
async def served(*states: UpstreamState, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Served]:
    database = await open_database(None)
    try:

        async def opened() -> KeptResults:
            return KeptResults(database)

        results = Results(Estimator("auto", COUNTER), ResultStore(opened), bounds=limits)
        pool = RecordingPool()
        gateway = Gateway(
            await live_catalog(*states), pool, ToolForms(COUNTER), results, 5, limits, stubs=python_stubs()
        )
        async with Client(build_server(gateway, "1", Relay(pool, dict))) as client:
            yield Served(client, gateway)
    finally:
        await database.close()


@pytest.mark.slow
@pytest.mark.parametrize("detail", Detail)
@pytest.mark.parametrize("name", HUGE)
async def test_a_tool_of_any_size_is_found_in_a_reply_within_the_limit(name: str, detail: Detail) -> None:
    tools = [mcp_tool(f"pick_thing_{at}", "Pick a thing") for at in range(3)]
    huge = HUGE[name].model_copy(update={"name": "pick_thing_9"})
    async with served(running("s", huge, *tools)) as opened:
        found = await opened.found(detail)
        assert {tool.name for tool in found.tools} == {tool.name for tool in (huge, *tools)}
        assert found.token_metrics.returned_tokens == sum(map(COUNTER.count_tool_tokens, (huge, *tools)))
        shown = next(tool for tool in found.tools if tool.name == huge.name)
        # What a model does not need is left out silently, except in full. Tool and note state what else is missing.
        if "more" in shown.model_dump_json() or "…" in shown.model_dump_json():
            assert "Abbreviated: pick_thing_9." in (found.note or "")
        else:
            assert detail is not Detail.FULL or shown.model_dump() == huge.model_dump()


async def test_what_is_abbreviated_says_how_much_is_missing() -> None:
    async with served(running("s", HUGE["an enum"])) as opened:
        found = await opened.found("signature")
        assert "'v0'|'v1'|" in (found.tools[0].description or "")
        assert "'… 89,800 more'" in (found.tools[0].description or "")
        assert found.note == (
            'Abbreviated: pick_thing. Search for one alone, with limit=1 and detail="full", to read all of it.'
        )


@pytest.mark.slow
async def test_all_of_one_huge_tool_can_be_read_page_by_page() -> None:
    tool = mcp_tool("pick_thing", "Pick a thing", {"thing": {"enum": VALUES[:9_000]}})
    async with served(running("s", tool)) as opened:
        found = await opened.found("full", limit=1)
        assert found.note is not None
        result_id = found.note.split('"')[1]
        read, offset = "", 0
        while True:
            result = await opened.client.call_tool("read_result", {"result_id": result_id, "offset": offset})
            pages = [block.text for block in result.content if isinstance(block, types.TextContent)]
            assert sum(map(COUNTER.count_tokens, pages)) <= MOST
            read += pages[0]
            about = (result.meta or {})["mcp-optimizer/page"]
            if "nextOffset" not in about:
                break
            offset = about["nextOffset"]
        assert read == tool.model_dump_json()


@pytest.mark.slow
@pytest.mark.parametrize("detail", [Detail.SIGNATURE, Detail.SCHEMA, Detail.FULL])
async def test_many_tools_share_a_reply_and_small_ones_are_whole(detail: Detail) -> None:
    large = [mcp_tool(f"pick_thing_{at}", "Pick a thing", {"a": {"enum": VALUES[:9_000]}}) for at in range(10)]
    small = [mcp_tool(f"pick_small_thing_{at}", "Pick a thing", {"a": {"type": "string"}}) for at in range(10)]
    async with served(running("s", *large, *small)) as opened:
        found = await opened.found(detail, limit=1_000_000)
        assert len(found.tools) == 20
        whole = {tool.name for tool in found.tools if "…" not in tool.model_dump_json()}
        assert whole == {tool.name for tool in small}


@pytest.mark.slow
async def test_more_tools_than_a_reply_holds_are_left_out_and_that_is_said() -> None:
    tools = [mcp_tool(f"pick_thing_{at}", "Pick a thing. " + "Words. " * 60) for at in range(1_000)]
    async with served(running("s", *tools)) as opened:
        found = await opened.found("full", limit=1_000_000)
        assert len(found.tools) > 10
        assert "More tools fit than a reply has room for" in (found.note or "")


@pytest.mark.requirement("B2", "TS-1")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["an enum", "properties", "required", "words", "branches"])
async def test_an_argument_error_is_within_the_limit_and_the_original_schema_decides(name: str) -> None:
    async with served(running("s", HUGE[name])) as opened:
        wrong = {"thing": "nothing of the kind", "p0": 1, "a": 1}
        text = await opened.text("call_tool", {"tool_name": "pick_thing", "parameters": wrong})
        if name != "words":
            assert text.startswith("Invalid parameters for 'pick_thing'")
            assert "abbreviated" in text
        assert COUNTER.count_tokens(text) <= MOST
    async with served(running("s", HUGE["an enum"])) as opened:
        # This value is valid although it is not among the values shown.
        result = await opened.client.call_tool(
            "call_tool", {"tool_name": "pick_thing", "parameters": {"thing": VALUES[-1]}}
        )
        assert not result.is_error


async def test_a_page_of_long_names_ends_where_the_reply_is_full_and_the_next_begins_there() -> None:
    tools = [mcp_tool(f"{at:04}" + "☃" * 250, "ü" * 100) for at in range(150)]
    async with served(running("s" * 200, *tools)) as opened:
        names: list[str] = []
        offset: int | None = 0
        while offset is not None:
            text = await opened.text("list_tools", {"offset": offset})
            assert COUNTER.count_tokens(text) <= MOST
            page = json.loads(text)
            names += [tool["name"] for tool in page["tools"]]
            offset = page.get("next_offset")
        assert names == [alias("s" * 200, tool.name) for tool in tools]


@pytest.mark.slow
async def test_thousands_of_servers_that_are_down_are_counted_not_named() -> None:
    servers = [down(f"server-{number:04}") for number in range(2_000)]
    async with served(running("s", mcp_tool("pick_thing")), *servers) as opened:
        for text in [
            (await opened.found("signature")).note or "",
            json.loads(await opened.text("list_tools", {}))["note"],
            await opened.text("list_tools", {"server": "other"}),
        ]:
            assert "more" in text
            assert len(text) < 1_000


HUGE_TEXT = "x" * 3_000_000
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "a name": ("call_tool", {"tool_name": HUGE_TEXT, "parameters": {}}),
    "a server": ("call_tool", {"tool_name": "pick_thing", "server_name": HUGE_TEXT, "parameters": {}}),
    "a server to list": ("list_tools", {"server": HUGE_TEXT}),
    "parameters": ("call_tool", {"tool_name": "pick_thing", "parameters": HUGE_TEXT}),
    "a member": ("call_tool", {"tool_name": "pick_thing", "parameters": {HUGE_TEXT: 1}}),
    "a value": ("call_tool", {"tool_name": "pick_thing", "parameters": {"a": HUGE_TEXT}}),
    "a select": ("call_tool", {"tool_name": "pick_thing", "parameters": {}, "select": HUGE_TEXT}),
    "a result": ("read_result", {"result_id": HUGE_TEXT}),
    "a search": ("read_result", {"result_id": "r1", "search": HUGE_TEXT}),
    "an offset": ("read_result", {"result_id": "r1", "offset": HUGE_TEXT}),
    "a far offset": ("list_tools", {"offset": -(10**4_000)}),
    "a limit": ("find_tool", {"tool_description": "x", "limit": HUGE_TEXT}),
    "a low limit": ("find_tool", {"tool_description": "x", "limit": -(10**4_000)}),
    "a detail": ("find_tool", {"tool_description": "x", "detail": HUGE_TEXT}),
    "a request": ("find_tool", {"tool_description": HUGE_TEXT}),
    "keywords": ("find_tool", {"tool_description": "x", "tool_keywords": [HUGE_TEXT]}),
}


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("name", LARGE)
async def test_an_error_does_not_repeat_all_that_was_given(name: str) -> None:
    tool = mcp_tool("pick_thing", properties={"a": {"type": "integer"}}, additionalProperties=False)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    async with served(running("s", tool.model_copy(update={"input_schema": schema}))) as opened:
        own, arguments = LARGE[name]
        result = await opened.client.call_tool(own, arguments)
        assert result.is_error
        assert len(str(result.content)) < 3_000


async def test_an_unknown_tool_that_is_called_by_its_name_is_not_repeated_whole() -> None:
    async with served(running("s", mcp_tool("pick_thing"))) as opened:
        with pytest.raises(MCPError) as refused:
            await opened.client.call_tool(HUGE_TEXT, {})
        assert len(str(refused.value)) < 1_000


@pytest.mark.slow
async def test_the_limit_of_a_reply_is_that_of_the_settings() -> None:
    async with served(running("s", HUGE["an enum"]), limits=Limits(reply_tokens=1_000)) as opened:
        for detail in Detail:
            await opened.found(detail)
