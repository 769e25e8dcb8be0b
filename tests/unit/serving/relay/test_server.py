"""The gateway's MCP server, called by the SDK's own client in both eras: answers, errors, and nothing lost between."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from mcp_optimizer import FindToolResponse
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.own_tools import INSTRUCTIONS, OWN_TOOLS
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import CallTimeout, UpstreamRefusal
from mcp_optimizer.gateway.gateway import SCORES_META_KEY
from mcp_optimizer.results.metadata import TOOL_META_KEY
from mcp_optimizer.serving.own_tools import SAVINGS_META_KEY
from mcp_optimizer.serving.relay.connected import passable
from mcp_optimizer.serving.relay.server import Relay
from mcp_optimizer.serving.server import build_server
from mcp_optimizer.token_counter import VOCABULARIES, TokenCounter
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import Answer, RecordingPool, down, gateway_over, mcp_tool, running

PROPERTIES = {"title": {"type": "string"}, "milestone": {"type": ["string", "null"], "default": None}}
ISSUE = mcp_tool(
    "create_issue", "Create an issue", PROPERTIES, futureField={"kept": [None]}, annotations={"readOnlyHint": False}
)
GITHUB = running("github", ISSUE, mcp_tool("list_issues", "List issues"), mcp_tool("search", "Search code"))
SLACK = running("slack", mcp_tool("send_message", "Send a message"), mcp_tool("search", "Search messages"))


class Served:
    """A client of a server in front of a recording pool, with every raw result that the server sent."""

    def __init__(self, client: Client, pool: RecordingPool, sent: list[tuple[str, dict[str, Any]]]) -> None:
        self.client = client
        self.pool = pool
        self._sent = sent

    @property
    def last_result(self) -> dict[str, Any]:
        """The raw result of the last `tools/call`. The client may have listed tools since."""
        return next(result for method, result in reversed(self._sent) if method == "tools/call")

    @property
    def last_list(self) -> dict[str, Any]:
        return next(result for method, result in reversed(self._sent) if method == "tools/list")

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> types.CallToolResult:
        return await self.client.call_tool(name, arguments)

    async def answer(self, name: str, **arguments: Any) -> Any:
        """The result of a call that must succeed, as a program reads it: JSON, which find_tool is asked for."""
        asked = {"detail": "full", **arguments} if name == "find_tool" else arguments
        result = await self.call(name, asked)
        assert not result.is_error, text_of(result)
        assert result.structured_content is None
        return json.loads(text_of(result))

    async def error(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, arguments)
        assert result.is_error
        assert result.structured_content is None
        return text_of(result)


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


Open = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_server(mode: str) -> Open:
    """Returns a function that opens a client. A test opens it itself: the SDK must enter and exit in the same task."""

    @asynccontextmanager
    async def opened(*states: UpstreamState, answer: Answer | None = None) -> AsyncIterator[Served]:
        pool = RecordingPool(answer)
        server = build_server(await gateway_over(*(states or (GITHUB, SLACK)), pool=pool), "1.2.3", Relay(pool, dict))
        sent: list[tuple[str, dict[str, Any]]] = []

        async def remember(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
            result = await call_next(ctx)
            if isinstance(result, dict):
                sent.append((ctx.method, result))
            return result

        server.middleware.insert(0, remember)
        async with Client(server, mode=mode) as client:
            yield Served(client, pool, sent)

    return opened


async def test_a_client_is_greeted_and_sees_four_tools(open_server: Open, mode: str) -> None:
    async with open_server() as served:
        info = served.client.server_info
        assert info is not None
        assert (info.name, info.version) == ("mcp-optimizer", "1.2.3")
        assert served.client.instructions == INSTRUCTIONS
        listed = await served.client.list_tools()
        assert [tool.name for tool in listed.tools] == ["find_tool", "call_tool", "list_tools", "read_result"]
        raw = served.last_list
        assert raw["tools"] == list(OWN_TOOLS)
        if mode == "legacy":
            assert raw.keys() == {"tools"}
        else:
            assert (raw["resultType"], raw["cacheScope"]) == ("complete", "public")
            assert raw["ttlMs"] > 0


@pytest.mark.parametrize("encoding", VOCABULARIES)
def test_our_own_tools_cost_less_than_400_tokens_together(encoding: str) -> None:
    wire = json.dumps({"tools": OWN_TOOLS}, separators=(",", ":"), ensure_ascii=False)
    assert TokenCounter(encoding).count_tokens(wire + INSTRUCTIONS) < 400


@pytest.mark.requirement("A6", "DM-FindToolResponse", "FR-006", "R-3", "SC-001", "SC-004")
async def test_find_tool_answers_a_program_with_definitions_and_savings(open_server: Open) -> None:
    async with open_server() as served:
        found = await served.answer(
            "find_tool", tool_description="create an issue", tool_keywords="github", limit=1, detail="full"
        )
        assert found["tools"] == [ISSUE.model_dump(mode="json")]
        assert found.keys() == {"tools", "token_metrics"}
        FindToolResponse.model_validate(found)
        others = {"list_issues": "List issues", "github__search": "Search code", "slack__search": "Search messages"}
        others["send_message"] = "Send a message"
        everything = [ISSUE, *(mcp_tool(name, description) for name, description in others.items())]
        baseline = sum(map(TokenCounter().count_tool_tokens, everything))
        returned = TokenCounter().count_tool_tokens(ISSUE)
        assert found["token_metrics"] == {
            "baseline_tokens": baseline,
            "returned_tokens": returned,
            "tokens_saved": baseline - returned,
            "savings_percentage": pytest.approx((baseline - returned) / baseline * 100, abs=0.01),
        }


async def test_a_find_tool_reply_is_compact_and_has_no_nulls_of_its_own(open_server: Open) -> None:
    async with open_server() as served:
        asked = {"tool_description": "create an issue", "limit": 1, "detail": "full"}
        text = text_of(await served.call("find_tool", asked))
        assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        answer = json.loads(text)
        assert None not in answer.values()
        assert None not in answer["tools"][0].values()
        # A schema is left unchanged.
        assert answer["tools"][0]["inputSchema"] == ISSUE.input_schema


async def test_scores_stand_in_meta_where_they_cost_the_model_nothing(open_server: Open) -> None:
    async with open_server() as served:
        await served.answer("find_tool", tool_description="search")
        raw = served.last_result
        assert set(raw["_meta"][SCORES_META_KEY]) == {"github__search", "slack__search"}
        assert "score" not in raw["content"][0]["text"]


@pytest.mark.requirement("A5", "FR-004")
@pytest.mark.parametrize("detail", [None, *Detail])
async def test_savings_are_exact_whatever_the_detail_that_is_asked_for(open_server: Open, detail: str | None) -> None:
    async with open_server() as served:
        full = await served.answer("find_tool", tool_description="create search issue", detail="full")
        asked = {"tool_description": "create search issue"} | ({"detail": detail} if detail else {})
        text = text_of(await served.call("find_tool", asked))
        found = served.last_result["_meta"][SAVINGS_META_KEY]
        assert found == {**full["token_metrics"], "reply_tokens": TokenCounter().count_tokens(text)}
        originals = [McpTool.model_validate(tool) for tool in full["tools"]]
        assert found["returned_tokens"] == sum(map(TokenCounter().count_tool_tokens, originals))
        assert list(served.last_result["_meta"][SCORES_META_KEY]) == [tool["name"] for tool in full["tools"]]


async def test_nothing_found_is_an_answer_with_a_note(open_server: Open) -> None:
    async with open_server() as served:
        found = await served.answer("find_tool", tool_description="zebra")
        assert found["tools"] == []
        assert found["token_metrics"]["tokens_saved"] == found["token_metrics"]["baseline_tokens"] > 0
        assert "list_tools" in found["note"]


async def test_no_server_at_all_is_an_answer_with_zero_savings(open_server: Open) -> None:
    async with open_server(down("github")) as served:
        found = await served.answer("find_tool", tool_description="create an issue")
        assert found["tools"] == []
        assert set(found["token_metrics"].values()) == {0}
        assert "github (failed)" in found["note"]
        listed = await served.answer("list_tools")
        assert (listed["tools"], listed["total"]) == ([], 0)
        assert "github (failed)" in listed["note"]


async def test_list_tools_comes_in_pages(open_server: Open) -> None:
    many = running("many", *(mcp_tool(f"tool_{number:03}", f"Does {number}. And more.") for number in range(150)))
    async with open_server(many) as served:
        first = await served.answer("list_tools")
        assert (len(first["tools"]), first["total"], first["next_offset"]) == (100, 150, 100)
        assert first["tools"][0] == {"name": "tool_000", "server": "many", "description": "Does 0."}
        second = await served.answer("list_tools", server="many", offset=first["next_offset"])
        assert len(second["tools"]) == 50
        assert "next_offset" not in second
        assert "note" not in second


@pytest.mark.parametrize("number", [2, "2", 2.0, " 2 "])
async def test_a_number_may_be_given_as_text(open_server: Open, number: object) -> None:
    async with open_server() as served:
        found = await served.answer("find_tool", tool_description="search issue message", limit=number)
        assert len(found["tools"]) == 2
        assert len((await served.answer("list_tools", offset=number))["tools"]) == 3


@pytest.mark.parametrize("number", ["two", 2.5, True, [2], "--2", "²", "1e3", "9" * 5000])
async def test_what_is_no_number_is_an_error_with_text(open_server: Open, number: object) -> None:
    async with open_server() as served:
        assert "limit must be a whole number" in await served.error("find_tool", tool_description="x", limit=number)
        assert "offset must be a whole number" in await served.error("list_tools", offset=number)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("find_tool", {}, "tool_description is required and must be text."),
        ("find_tool", {"tool_description": "  "}, "tool_description is required"),
        ("find_tool", {"tool_description": 7}, "tool_description is required and must be text."),
        ("find_tool", {"tool_description": "x", "tool_keywords": {}}, "tool_keywords must be text."),
        ("find_tool", {"tool_description": "x", "limit": 0}, "limit must be at least 1"),
        ("find_tool", {"tool_description": "x", "detail": "brief"}, "detail must be one of signature, schema, full"),
        ("list_tools", {"server": "nowhere"}, "Unknown server 'nowhere'. Servers: github, slack."),
        ("list_tools", {"offset": -1}, "offset must not be negative"),
        ("call_tool", {}, "tool_name is required"),
        ("call_tool", {"tool_name": "nothing_like_it", "parameters": {}}, "Unknown tool 'nothing_like_it'."),
        ("call_tool", {"tool_name": "search", "parameters": {}}, "github__search, slack__search"),
        ("call_tool", {"tool_name": "create_issue", "parameters": "{"}, "not valid JSON"),
        ("call_tool", {"tool_name": "create_issue", "parameters": [1]}, "must be an object, not int"),
        ("call_tool", {"tool_name": "create_issue", "parameters": {"title": 1}}, "title: 1 is not of type"),
        ("call_tool", {"tool_name": "search", "parameters": {}, "server_name": "x"}, "Unknown server 'x'"),
    ],
)
async def test_a_wrong_call_of_our_own_tools_is_an_error_that_the_model_can_read(
    open_server: Open, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with open_server() as served:
        assert message in await served.error(tool, **arguments)
        assert served.pool.calls == []


async def test_invalid_arguments_are_answered_with_the_schema_to_get_them_right(open_server: Open) -> None:
    async with open_server() as served:
        text = await served.error("call_tool", tool_name="create_issue", parameters={"title": 1})
        schema = json.loads(text.partition(" Schema: ")[2])
        assert schema["properties"].keys() == {"title", "milestone"}
        assert schema["properties"]["title"]["type"] == "string"


@pytest.mark.parametrize(
    "arguments",
    [
        {"tool_name": "create_issue", "parameters": {"title": "x"}},
        {"tool_name": "create_issue", "parameters": '{"title": "x"}'},
        {"tool_name": "create_issue", "arguments": {"title": "x"}},
        {"tool_name": "create_issue", "title": "x"},
        {"tool_name": "create_issue", "parameters": {}, "title": "x"},
        {"tool_name": "create_issue", "parameters": None, "title": "x"},
        {"tool_name": "create_issue", "parameters": {"title": "x"}, "server_name": "github"},
        {"tool_name": "create_issue", "parameters": {"title": "x"}, "server_name": None},
    ],
)
async def test_call_tool_reads_what_models_mean(open_server: Open, arguments: dict[str, Any]) -> None:
    async with open_server() as served:
        assert text_of(await served.call("call_tool", arguments)) == "done"
        assert served.pool.calls == [("github", "tools/call", {"name": "create_issue", "arguments": {"title": "x"}})]


async def test_keywords_may_be_a_list(open_server: Open) -> None:
    async with open_server() as served:
        found = await served.answer("find_tool", tool_description="it", tool_keywords=["create", "issue"], limit=1)
        assert found["tools"][0]["name"] == "create_issue"


async def test_a_found_tool_can_be_called_by_its_own_name(open_server: Open) -> None:
    async with open_server() as served:
        assert text_of(await served.call("slack__search", {"q": "x"})) == "done"
        assert served.pool.calls == [("slack", "tools/call", {"name": "search", "arguments": {"q": "x"}})]


async def test_an_unknown_tool_called_by_its_own_name_is_a_protocol_error_with_the_nearest_names(
    open_server: Open,
) -> None:
    async with open_server() as served:
        with pytest.raises(MCPError, match=r"Unknown tool 'create_isue'.*create_issue") as raised:
            await served.call("create_isue", {})
        assert raised.value.code == types.INVALID_PARAMS


UNKNOWN_TO_THE_SDK: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "hello", "futureField": {"a": None}, "_meta": {"x": None}},
        {"type": "hologram", "voxels": [1, None, {"z": 2}]},
    ],
    "structuredContent": {"rows": [{"id": 1, "gone": None}], "n": 1.5},
    "isError": False,
    "futureField": [None, {"deep": True}],
    "_meta": {"vendor/key": {"nested": [None]}, "progressToken": 7},
}


async def test_what_the_sdk_does_not_know_of_a_result_comes_through_untouched(open_server: Open, mode: str) -> None:
    async with open_server(answer=lambda _server, _params: UNKNOWN_TO_THE_SDK) as served:
        # The SDK's client refuses the unknown block "hologram"; this test is about what was sent.
        with contextlib.suppress(ValueError):
            await served.call("call_tool", {"tool_name": "create_issue", "parameters": {}})
        raw = served.last_result
        meta = {key: value for key, value in raw["_meta"].items() if key in UNKNOWN_TO_THE_SDK["_meta"]}
        assert meta == UNKNOWN_TO_THE_SDK["_meta"]
        assert raw["_meta"][TOOL_META_KEY]["server"] == "github"
        own = {key: value for key, value in raw.items() if key not in ("_meta", "resultType")}
        assert own == {key: value for key, value in UNKNOWN_TO_THE_SDK.items() if key != "_meta"}
        assert ("resultType" in raw) is (mode == "auto")
        assert (types.SERVER_INFO_META_KEY in raw["_meta"]) is (mode == "auto")


async def test_a_result_type_of_a_modern_server_is_withheld_from_a_legacy_client(open_server: Open, mode: str) -> None:
    newer = {"resultType": "complete", "content": []}
    async with open_server(answer=lambda _server, _params: newer) as served:
        await served.call("send_message", {})
        raw = served.last_result
        assert raw.get("resultType") == (None if mode == "legacy" else "complete")


async def test_an_error_result_of_a_server_stays_one(open_server: Open) -> None:
    failed = {"content": [{"type": "text", "text": "no such repository"}], "isError": True}
    async with open_server(answer=lambda _server, _params: failed) as served:
        assert await served.error("call_tool", tool_name="create_issue", parameters={}) == "no such repository"


async def test_a_refusal_of_a_server_passes_with_its_code_and_data(open_server: Open) -> None:
    def refuse(server: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise UpstreamRefusal(server, -32050, "quota exceeded", {"retryAfter": 7})

    async with open_server(answer=refuse) as served:
        for name, arguments in (
            ("call_tool", {"tool_name": "create_issue", "parameters": {}}),
            ("create_issue", {}),
        ):
            with pytest.raises(MCPError) as raised:
                await served.call(name, arguments)
            assert (raised.value.code, raised.value.message) == (-32050, "quota exceeded")
            assert raised.value.error.data == {"retryAfter": 7}


async def test_a_server_that_does_not_answer_is_an_error_that_the_model_can_read(open_server: Open) -> None:
    def late(server: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise CallTimeout(server, "The server 'github' did not answer within 60 s.")

    async with open_server(answer=late) as served:
        assert "did not answer within 60 s" in await served.error("call_tool", tool_name="create_issue", parameters={})
        assert "did not answer within 60 s" in await served.error("create_issue")


@pytest.mark.parametrize("params", [None, {}, {"name": 7}, {"name": "find_tool", "arguments": [1]}])
async def test_a_call_without_a_name_or_with_arguments_that_are_no_object_is_a_protocol_error(params: Any) -> None:
    server = build_server(await gateway_over(GITHUB), "1.2.3", Relay(RecordingPool(), dict))

    async def never(_ctx: Any) -> HandlerResult:
        raise AssertionError("not answered")

    # The SDK's client cannot send this, so the middleware is called directly.
    context: ServerRequestContext[Any, Any] = ServerRequestContext(
        session=cast(Any, None),
        lifespan_context={},
        protocol_version="2025-11-25",
        method="tools/call",
        params=params,
        request_id=1,
    )
    with pytest.raises(MCPError, match="tools/call needs a name and, if any, an object of arguments") as raised:
        await cast(Any, server.middleware[-1]).innermost_first[0](context, never)
    assert raised.value.code == types.INVALID_PARAMS


def test_no_server_is_told_that_a_client_has_tasks() -> None:
    extensions = {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}
    declared = {"sampling": {}, "tasks": {"list": {}}, "extensions": extensions}
    assert passable(declared) == {
        "sampling": {},
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}},
    }
    assert passable({"extensions": {"other": {}}}) == {"extensions": {"other": {}}}
