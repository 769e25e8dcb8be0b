"""Find, list and call: every way a model may name a tool, every way that can go wrong, and the reply to each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import AmbiguousTool, InvalidArguments, InvalidRequest, ServerUnavailable, UnknownTool
from mcp_optimizer.gateway.error_texts import for_model
from mcp_optimizer.gateway.found_tools import summary
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.resolving import unknown_tool
from mcp_optimizer.results.metadata import TOOL_META_KEY
from mcp_optimizer.serving.own_tools import find_response
from tests.unit.catalogs import (
    Choking,
    RecordingPool,
    down,
    gateway_over,
    live_catalog,
    mcp_tool,
    new_gateway,
    running,
)

SEARCH = mcp_tool("search", "Search for things")
ISSUE = mcp_tool(
    "create_issue",
    "Create an issue",
    {"title": {"type": "string"}, "labels": {"type": "array"}},
    annotations={"destructiveHint": False},
)
MESSAGE = mcp_tool("send_message", "Send a message")
STATES = (
    running("github", SEARCH, ISSUE, mcp_tool("list_issues"), mcp_tool("close_issue"), mcp_tool("getHTTPStatus")),
    running("slack", SEARCH, MESSAGE),
    down("jira", "it exited with code 3"),
    down("linear", "", ServerStatus.STARTING),
    down("old", "disabled in its server file", ServerStatus.STOPPED),
)


@pytest.fixture
async def gateway() -> Gateway:
    return await gateway_over(*STATES)


@pytest.mark.parametrize(
    ("name", "server", "expected"),
    [
        ("create_issue", None, ("github", "create_issue")),
        ("github__create_issue", None, ("github", "create_issue")),
        ("github.create_issue", None, ("github", "create_issue")),
        ("github/create_issue", None, ("github", "create_issue")),
        ("github:create_issue", None, ("github", "create_issue")),
        ("mcp__github__create_issue", None, ("github", "create_issue")),
        ("create_issue", "github", ("github", "create_issue")),
        ("github__create_issue", "github", ("github", "create_issue")),
        ("createIssue", None, ("github", "create_issue")),
        ("create-issue", None, ("github", "create_issue")),
        ("Create Issue", None, ("github", "create_issue")),
        ("github__createIssue", None, ("github", "create_issue")),
        ("createIssue", "github", ("github", "create_issue")),
        ("get_http_status", None, ("github", "getHTTPStatus")),
        ("github__search", None, ("github", "search")),
        ("slack__search", None, ("slack", "search")),
        ("slack.search", None, ("slack", "search")),
        ("search", "slack", ("slack", "search")),
        ("mcp__slack__search", None, ("slack", "search")),
        ("send_message", "", ("slack", "send_message")),
    ],
)
async def test_a_tool_is_found_by_every_name_that_can_mean_only_it(
    gateway: Gateway, name: str, server: str | None, expected: tuple[str, str]
) -> None:
    tool = gateway.resolve(name, server)
    assert (tool.server, tool.record.name) == expected


@pytest.mark.parametrize("name", ["search", "Search", "SEARCH"])
async def test_a_name_that_several_servers_have_is_answered_with_the_names_to_choose_from(
    gateway: Gateway, name: str
) -> None:
    with pytest.raises(AmbiguousTool) as raised:
        gateway.resolve(name)
    assert raised.value.candidates == ("github__search", "slack__search")
    assert "github__search, slack__search" in for_model(raised.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("create_isue", "create_issue"),
        ("issue_create", "create_issue"),
        ("list_all_issues", "list_issues"),
        ("github__make_issue", "create_issue"),
    ],
)
async def test_an_unknown_name_is_answered_with_the_three_nearest(gateway: Gateway, name: str, nearest: str) -> None:
    with pytest.raises(UnknownTool) as raised:
        gateway.resolve(name)
    assert nearest in raised.value.nearest
    assert len(raised.value.nearest) <= 3
    text = for_model(raised.value)
    assert repr(name) in text
    assert ", ".join(raised.value.nearest) in text
    assert "find_tool" in text


async def test_of_more_than_three_near_names_three_are_given() -> None:
    gateway = await gateway_over(running("s", *(mcp_tool(f"get_thing_{letter}") for letter in "abcdef")))
    with pytest.raises(UnknownTool) as raised:
        gateway.resolve("get_thing_x")
    assert len(raised.value.nearest) == 3


async def test_names_near_an_unknown_one_on_a_server_are_that_servers(gateway: Gateway) -> None:
    with pytest.raises(UnknownTool, match="Server 'slack' has no such tool") as raised:
        gateway.resolve("search_message", "slack")
    assert set(raised.value.nearest) == {"slack__search", "send_message"}


async def test_with_no_server_running_an_unknown_name_has_no_near_ones() -> None:
    gateway = await gateway_over()
    with pytest.raises(UnknownTool, match=r"Unknown tool 'anything'\. Use find_tool"):
        gateway.resolve("anything")


async def test_two_names_without_a_single_letter_are_not_the_same_name() -> None:
    gateway = await gateway_over(running("s", mcp_tool("_", "Deletes everything")))
    assert gateway.resolve("_").record.name == "_"
    with pytest.raises(UnknownTool):
        gateway.resolve("???")


async def test_a_tool_of_a_server_that_is_down_is_answered_with_why(gateway: Gateway) -> None:
    with pytest.raises(ServerUnavailable, match="'jira' is not running: it exited with code 3") as raised:
        gateway.resolve("create", "jira")
    assert raised.value.server == "jira"
    with pytest.raises(ServerUnavailable, match="'linear' is not running: starting"):
        gateway.resolve("create", "linear")
    with pytest.raises(UnknownTool, match="Its server 'jira' is failed: it exited with code 3"):
        gateway.resolve("jira__create")
    with pytest.raises(UnknownTool, match="Its server 'linear' is starting"):
        gateway.resolve("mcp__linear__create")


async def test_a_tool_whose_server_went_away_is_answered_with_why_and_with_no_other_tool() -> None:
    catalog = await live_catalog(running("github", ISSUE), running("slack", MESSAGE))
    gateway = new_gateway(catalog)
    catalog.on_state(down("github", "it did not answer within 60 s"))
    await catalog.caught_up()
    with pytest.raises(ServerUnavailable) as raised:
        gateway.resolve("create_issue")
    for error in (raised.value, unknown_tool(gateway.snapshot, "create_issue", advice="")):
        assert "'github' is not running: it did not answer within 60 s" in for_model(error)
        assert "send_message" not in for_model(error)


async def test_a_server_is_awaited_until_the_tools_that_are_expected_of_it_are_in_the_index() -> None:
    snapshot = (await gateway_over(running("github", ISSUE))).snapshot
    states = {**snapshot.states, "slack": down("slack", "", ServerStatus.STARTING)}
    early = replace(snapshot, states=states, expected=frozenset({"slack"}))
    assert early.is_starting
    assert [state.name for state in early.missing()] == ["slack"]


async def test_an_unknown_server_is_answered_with_those_there_are(gateway: Gateway) -> None:
    with pytest.raises(InvalidRequest, match=r"Unknown server 'gitlab'\. Servers: github, slack, jira, linear, old"):
        gateway.resolve("search", "gitlab")
    with pytest.raises(InvalidRequest, match="Unknown server 'gitlab'"):
        gateway.list_tools("gitlab")


async def test_a_call_reaches_the_server_under_the_tools_own_name_with_plain_arguments() -> None:
    pool = RecordingPool()
    gateway = await gateway_over(*STATES, pool=pool)
    await gateway.call("slack__search", '{"arguments": {"q": "x"}}')
    await gateway.call("createIssue", {"title": "x"})
    await gateway.call("send_message")
    assert pool.calls == [
        ("slack", "tools/call", {"name": "search", "arguments": {"q": "x"}}),
        ("github", "tools/call", {"name": "create_issue", "arguments": {"title": "x"}}),
        ("slack", "tools/call", {"name": "send_message", "arguments": {}}),
    ]


async def test_a_result_comes_back_as_it_was_sent_with_its_origin_added() -> None:
    sent: dict[str, Any] = {
        "content": [{"type": "future", "data": None, "nested": {"a": [1]}}],
        "structuredContent": {"rows": [None]},
        "isError": True,
        "futureField": {"kept": None},
        "_meta": {"vendor/key": 1},
    }
    gateway = await gateway_over(*STATES, pool=RecordingPool(lambda _server, _params: sent))
    origin = {"name": "create_issue", "server": "github", "annotations": {"destructiveHint": False}}
    answered = await gateway.call("create_issue", {})
    meta = answered.pop("_meta")
    assert answered == {key: value for key, value in sent.items() if key != "_meta"}
    assert meta["vendor/key"] == 1
    assert meta[TOOL_META_KEY] == origin
    assert set(meta) == {"vendor/key", TOOL_META_KEY, "tokens", "performance"}
    assert sent["_meta"] == {"vendor/key": 1}
    found = await gateway.call("slack__search")
    assert found["_meta"][TOOL_META_KEY] == {"name": "search", "server": "slack"}


@pytest.mark.parametrize("meta", [None, "text", []])
async def test_a_meta_that_is_no_object_is_replaced(meta: Any) -> None:
    gateway = await gateway_over(*STATES, pool=RecordingPool(lambda _server, _params: {"content": [], "_meta": meta}))
    assert set((await gateway.call("send_message"))["_meta"]) == {TOOL_META_KEY, "tokens", "performance"}


async def test_invalid_arguments_never_leave_and_are_answered_with_the_schema() -> None:
    pool = RecordingPool()
    gateway = await gateway_over(*STATES, pool=pool)
    with pytest.raises(InvalidArguments, match=r"'create_issue'.*title: 7 is not of type") as raised:
        await gateway.call("create_issue", {"title": 7})
    assert raised.value.schema["properties"].keys() == {"title", "labels"}
    assert '"labels"' in for_model(raised.value)
    assert pool.calls == []


@pytest.mark.parametrize("detail", Detail)
async def test_a_tool_that_cannot_be_counted_is_found_and_called_all_the_same(detail: Detail) -> None:
    poisoned = mcp_tool("poison_rats", "Spread poison", {"poison": {"type": "string"}})
    pool = RecordingPool()
    gateway = await gateway_over(running("s", poisoned, MESSAGE), pool=pool, counter=Choking())
    found = gateway.find("poison message", detail=detail)
    assert {hit.tool.name for hit in found.tools} == {"poison_rats", "send_message"}
    await gateway.call("poison_rats", {"poison": "x"})
    assert pool.calls == [("s", "tools/call", {"name": "poison_rats", "arguments": {"poison": "x"}})]


async def test_what_goes_wrong_at_the_server_comes_out_as_it_is() -> None:
    def refuse(server: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise ServerUnavailable(server, "it just died")

    gateway = await gateway_over(*STATES, pool=RecordingPool(refuse))
    with pytest.raises(ServerUnavailable, match="it just died"):
        await gateway.call("send_message")


async def test_finding_returns_as_many_as_asked_for_or_as_the_settings_say() -> None:
    tools = [mcp_tool(f"issue_{number}", "An issue") for number in range(20)]
    gateway = await gateway_over(running("s", *tools), find_limit=3)
    assert len(gateway.find("issue").tools) == 3
    assert len(gateway.find("issue", limit=7).tools) == 7
    assert len(gateway.find("issue", limit=10**30).tools) == 20
    for limit in (0, -1):
        with pytest.raises(InvalidRequest, match=f"limit must be at least 1, not {limit}"):
            gateway.find("issue", limit=limit)


async def test_finding_everything_saves_nothing() -> None:
    gateway = await gateway_over(running("s", mcp_tool("issue_first"), mcp_tool("issue_second")))
    metrics = gateway.find("issue").token_metrics
    assert (metrics.tokens_saved, metrics.savings_percentage) == (0, 0.0)
    assert metrics.returned_tokens == metrics.baseline_tokens > 0


async def test_a_request_that_nothing_fits_gets_nothing_and_a_hint(gateway: Gateway) -> None:
    found = gateway.find("bake a chocolate cake tonight")
    assert found.tools == ()
    assert found.token_metrics.returned_tokens == 0
    assert 0 <= found.fit < gateway.find("create an issue").fit <= 1
    note = find_response(found).note or ""
    assert "No tool found yet. Still starting" in note
    assert "jira (failed)" in note


async def test_each_tool_found_carries_its_score_best_first(gateway: Gateway) -> None:
    scores = [hit.score for hit in gateway.find("list issues of github", limit=5).tools]
    assert scores
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


async def test_finding_says_which_servers_could_not_be_searched(gateway: Gateway) -> None:
    assert [state.name for state in gateway.find("issue").missing] == ["jira", "linear"]


async def test_the_list_of_tools_comes_in_pages() -> None:
    tools = [mcp_tool(f"tool_{number:03}") for number in range(250)]
    gateway = await gateway_over(running("s", *tools), running("t", MESSAGE))
    pages, offset = [], 0
    while True:
        page = gateway.list_tools("s", offset)
        pages.append(page)
        if page.next_offset is None:
            break
        offset = page.next_offset
    assert [len(page.tools) for page in pages] == [100, 100, 50]
    assert [tool.name for page in pages for tool in page.tools] == [tool.name for tool in tools]
    assert {page.total for page in pages} == {250}
    assert gateway.list_tools().total == 251
    beyond = gateway.list_tools("s", 250)
    assert (beyond.tools, beyond.next_offset) == ((), None)
    with pytest.raises(InvalidRequest, match="offset must not be negative, but is -1"):
        gateway.list_tools("s", -1)


async def test_a_last_page_that_is_just_full_is_the_last() -> None:
    gateway = await gateway_over(running("s", *(mcp_tool(f"tool_{number}") for number in range(100))))
    assert gateway.list_tools().next_offset is None


async def test_a_list_says_what_is_missing_from_it(gateway: Gateway) -> None:
    assert [state.name for state in gateway.list_tools().missing] == ["jira", "linear"]
    assert gateway.list_tools("github").missing == ()
    assert [state.name for state in gateway.list_tools("jira").missing] == ["jira"]


@pytest.mark.parametrize(
    ("description", "title", "expected"),
    [
        ("Create an issue. Needs a token.", None, "Create an issue."),
        ("Create\n  an   issue", None, "Create an issue"),
        ("", "Creates issues", "Creates issues"),
        ("word " * 100, None, "word " * 19 + "word…"),
        ("Version 1.2 of it", None, "Version 1.2 of it"),
        ("", None, ""),
    ],
)
async def test_a_summary_is_the_first_sentence_or_its_beginning(
    description: str, title: str | None, expected: str
) -> None:
    gateway = await gateway_over(running("s", mcp_tool("t", description, title=title)))
    (tool,) = gateway.list_tools().tools
    assert summary(tool) == expected
    assert len(summary(tool)) <= 100
