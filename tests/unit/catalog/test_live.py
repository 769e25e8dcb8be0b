"""The live catalog follows the servers at once: its names, search results and token counts always add up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.tools import McpTool, ServerStatus, TokenMetrics
from mcp_optimizer.serving.own_tools import find_response
from mcp_optimizer.token_counter import TokenCounter, load_encoding
from mcp_optimizer.upstream.state import UpstreamState
from tests.trying import at_most
from tests.unit.catalogs import down, live_catalog, mcp_tool, new_catalog, new_gateway, running

SEARCH = mcp_tool("search", "Search for things")
ISSUE = mcp_tool("create_issue", "Create an issue", {"title": {"type": "string"}})
MESSAGE = mcp_tool("send_message", "Send a message")
GITHUB = running("github", SEARCH, ISSUE)
SLACK = running("slack", SEARCH, MESSAGE)


def names(catalog: LiveCatalog) -> list[str]:
    return [tool.name for tool in catalog.snapshot.running]


def found(catalog: LiveCatalog, query: str) -> list[str]:
    return [hit.tool.name for hit in new_gateway(catalog).find(query).tools]


def tokens(*tools: McpTool) -> int:
    return sum(TokenCounter().count_tool_tokens(tool) for tool in tools)


def renamed(tool: McpTool, name: str) -> McpTool:
    return McpTool.model_validate({**tool.model_dump(), "name": name})


@pytest.mark.requirement("A7", "A9", "FR-003", "DM-lifecycle-2")
@pytest.mark.promise("baseline-is-what-runs")
async def test_the_baseline_is_the_sum_over_running_servers_only() -> None:
    catalog = await live_catalog(running("github", ISSUE), down("jira"), running("slack", MESSAGE))
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE, MESSAGE)
    catalog.on_state(down("slack"))
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE)
    catalog.on_state(down("github", status=ServerStatus.STOPPED))
    assert catalog.snapshot.baseline_tokens == 0


@pytest.mark.requirement("FR-008")
async def test_with_no_server_there_is_nothing_to_find_and_nothing_to_save() -> None:
    answer = new_gateway(new_catalog()).find("anything")
    assert answer.tools == ()
    assert answer.token_metrics == TokenMetrics.of(0, 0)


@pytest.mark.requirement("A9")
@pytest.mark.promise("baseline-is-what-runs")
@pytest.mark.parametrize("status", [ServerStatus.FAILED, ServerStatus.STOPPED])
async def test_a_server_that_goes_leaves_baseline_names_and_search_in_the_same_call(status: ServerStatus) -> None:
    catalog = await live_catalog(GITHUB, SLACK)
    assert "create_issue" in found(catalog, "create issue")
    catalog.on_state(down("github", status=status))
    # Nothing was awaited since `on_state`.
    assert catalog.snapshot.baseline_tokens == tokens(SEARCH, MESSAGE)
    assert names(catalog) == ["search", "send_message"]
    assert found(catalog, "create issue") == []
    assert "create_issue" not in catalog.snapshot.by_name


async def test_a_name_that_two_servers_have_is_qualified_only_while_both_run() -> None:
    catalog = await live_catalog(GITHUB, SLACK)
    both = ["create_issue", "github__search", "slack__search", "send_message"]
    assert names(catalog) == both
    # A tool that is sent under a longer name is counted with that name.
    qualified = [renamed(SEARCH, name) for name in ("github__search", "slack__search")]
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE, MESSAGE, *qualified)
    assert catalog.snapshot.by_name["slack__search"].definition == qualified[1]
    catalog.on_state(down("slack"))
    assert names(catalog) == ["create_issue", "search"]
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE, SEARCH)
    catalog.on_state(SLACK)
    await catalog.caught_up()
    assert names(catalog) == both


async def test_a_server_that_comes_back_is_found_again() -> None:
    catalog = await live_catalog(GITHUB)
    catalog.on_state(down("github"))
    assert found(catalog, "create issue") == []
    catalog.on_state(running("github", SEARCH, ISSUE))
    await catalog.caught_up()
    assert found(catalog, "create issue") == ["create_issue"]
    assert catalog.snapshot.baseline_tokens == tokens(SEARCH, ISSUE)


async def test_a_new_listing_of_a_running_server_replaces_the_old_one() -> None:
    catalog = await live_catalog(GITHUB)
    catalog.on_state(running("github", ISSUE, MESSAGE))
    await catalog.caught_up()
    assert names(catalog) == ["create_issue", "send_message"]
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE, MESSAGE)


async def test_the_newest_of_two_listings_wins_even_if_the_older_one_takes_longer() -> None:
    catalog = new_catalog()
    catalog.on_state(running("github", *(mcp_tool(f"old{number}", "word " * 200) for number in range(300))))
    catalog.on_state(running("github", ISSUE))
    await catalog.caught_up()
    assert names(catalog) == ["create_issue"]


async def test_a_snapshot_never_changes() -> None:
    catalog = await live_catalog(GITHUB, SLACK)
    before = catalog.snapshot

    def seen(snapshot: Snapshot) -> tuple[Any, ...]:
        hits = snapshot.index.search("create issue", "", snapshot.allowed, 5).hits
        return (
            [tool.name for tool in snapshot.running],
            snapshot.baseline_tokens,
            {name: state.status for name, state in snapshot.states.items()},
            list(snapshot.by_name),
            snapshot.allowed.tolist(),
            [hit.position for hit in hits],
            [tool.name for tool in snapshot.at(hit.position for hit in hits)],
        )

    first = seen(before)
    catalog.on_state(down("github"))
    catalog.on_state(running("jira", mcp_tool("create_issue", "Create an issue issue issue")))
    catalog.on_state(down("slack", status=ServerStatus.STARTING))
    await catalog.caught_up()
    assert catalog.snapshot is not before
    assert seen(catalog.snapshot) != first
    assert seen(before) == first


async def test_a_snapshot_does_not_follow_a_server_that_only_changes_its_state() -> None:
    catalog = await live_catalog(GITHUB, down("jira"))
    catalog.on_state(down("jira", status=ServerStatus.STARTING))
    before = catalog.snapshot
    catalog.on_state(down("jira", "it exited with code 9"))
    assert before.states["jira"].status is ServerStatus.STARTING
    assert catalog.snapshot.states["jira"].reason == "it exited with code 9"
    assert catalog.snapshot.baseline_tokens == before.baseline_tokens


async def test_a_server_whose_tools_cannot_be_found_now_is_missing() -> None:
    catalog = new_catalog()
    catalog.on_state(down("failed"))
    catalog.on_state(down("starting", status=ServerStatus.STARTING))
    catalog.on_state(down("disabled", status=ServerStatus.STOPPED))
    catalog.on_state(running("empty"))
    catalog.on_state(GITHUB)
    # github runs, but its listing is still being ingested.
    assert [state.name for state in catalog.snapshot.missing()] == ["failed", "starting", "github"]
    await catalog.caught_up()
    assert [state.name for state in catalog.snapshot.missing()] == ["failed", "starting"]


async def test_whoever_waits_for_news_hears_of_the_next_change() -> None:
    catalog = await live_catalog(GITHUB)
    waiting = asyncio.create_task(catalog.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    catalog.on_state(down("github"))
    async with asyncio.timeout(1):
        await waiting


async def test_a_tool_that_cannot_be_counted_under_its_longer_name_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Choking(TokenCounter):
        def count_tokens(self, text: str) -> int:
            if "github__" in text:
                raise ValueError("the tokenizer choked")
            return super().count_tokens(text)

    catalog = await live_catalog(GITHUB, counter=Choking())
    catalog.on_state(SLACK)
    await catalog.caught_up()
    assert names(catalog) == ["create_issue", "github__search", "slack__search", "send_message"]
    assert catalog.snapshot.baseline_tokens == tokens(ISSUE, MESSAGE, renamed(SEARCH, "slack__search"))
    assert "the tokenizer choked" in caplog.text


WORDS = ["create", "list", "issue", "message", "board", "card", "weather", "não", "天气预报"]
PHRASES = st.lists(st.sampled_from(WORDS), max_size=4)
TOOL_NAMES = st.lists(st.sampled_from(WORDS[:6]), min_size=1, max_size=2).map("_".join)
TOOLS = st.builds(
    lambda name, words, parameters: mcp_tool(
        name, " ".join(words), {word: {"type": "string", "default": None} for word in parameters}, _meta={"x": [None]}
    ),
    TOOL_NAMES,
    PHRASES,
    PHRASES,
)
CATALOGS = st.dictionaries(
    st.sampled_from(["a", "b", "a__create", "github", "ü"]),
    st.tuples(st.lists(TOOLS, max_size=6, unique_by=lambda tool: tool.name), st.sampled_from(ServerStatus)),
    max_size=4,
)


def independent_count(definition: Any) -> int:
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
    return len(load_encoding("cl100k_base").encode_ordinary(text))


def put(catalog: LiveCatalog, servers: dict[str, tuple[list[McpTool], ServerStatus]]) -> None:
    for name, (_, status) in servers.items():
        if status is not ServerStatus.RUNNING:
            catalog.on_state(down(name, status=status))


@pytest.mark.requirement("A7", "FR-005")
@pytest.mark.promise("savings-never-negative")
@settings(max_examples=at_most(50), deadline=None)
@given(
    servers=CATALOGS,
    query=PHRASES.map(" ".join),
    keywords=PHRASES.map(" ".join),
    limit=st.integers(1, 30),
    detail=st.sampled_from(Detail),
)
@example({"a": ([ISSUE], ServerStatus.RUNNING), "b": ([], ServerStatus.STARTING)}, "", "", 5, Detail.FULL)
@example({"a": ([ISSUE], ServerStatus.STARTING), "b": ([SEARCH], ServerStatus.RUNNING)}, "", "", 5, Detail.FULL)
async def test_savings_always_add_up(
    servers: dict[str, tuple[list[McpTool], ServerStatus]], query: str, keywords: str, limit: int, detail: Detail
) -> None:
    # All servers run at first; then those that are to be down stop.
    states: list[UpstreamState] = [running(name, *tools) for name, (tools, _) in servers.items()]
    catalog = await live_catalog(*states)
    put(catalog, servers)
    # A server that starts again is found as it was, and saves nothing; one that rests counts as if it ran.
    there = (ServerStatus.RUNNING, ServerStatus.STARTING, ServerStatus.RESTING)
    up = {name: tools for name, (tools, status) in servers.items() if status in there}
    runs = {name for name, (_, status) in servers.items() if status in (ServerStatus.RUNNING, ServerStatus.RESTING)}

    answer = find_response(new_gateway(catalog).find(query, keywords, limit, detail)).model_dump(mode="json")
    everything = [tool.definition.model_dump(mode="json") for tool in catalog.snapshot.running]

    metrics = TokenMetrics.model_validate(answer["token_metrics"])
    assert metrics.tokens_saved >= 0
    stored = {tool["name"]: independent_count(tool) for tool in everything}
    assert metrics.returned_tokens == sum(stored[tool["name"]] for tool in answer["tools"])
    counted = {tool.name for tool in catalog.snapshot.running if tool.server in runs}
    counted |= {tool["name"] for tool in answer["tools"]}
    # What is asked for may be one of the tools that are not known yet: then finding nothing saves nothing.
    is_unknown = any(status is ServerStatus.STARTING and not tools for tools, status in servers.values())
    if is_unknown and not answer["tools"]:
        counted = set()
    assert metrics.baseline_tokens == sum(stored[name] for name in counted)
    assert len(answer["tools"]) <= limit
    returned = [tool["name"] for tool in answer["tools"]]
    assert len(set(returned)) == len(returned)
    originals = {tool["name"]: tool for tool in everything}
    for tool in answer["tools"]:
        # In every form, each tool is a running tool and costs no more than its definition.
        assert independent_count(tool) <= independent_count(originals[tool["name"]])
        assert detail is not Detail.FULL or tool == originals[tool["name"]]
    # Exactly the tools of running servers, each under a unique name.
    assert len({tool["name"] for tool in everything}) == len(everything) == sum(map(len, up.values()))
    own = sorted((tool.server, tool.record.name) for tool in catalog.snapshot.running)
    assert own == sorted((name, tool.name) for name, tools in up.items() for tool in tools)


async def test_a_server_that_is_forgotten_is_gone_in_the_same_call_and_its_name_can_mean_another() -> None:
    catalog = await live_catalog(GITHUB, SLACK)
    catalog.forget("github")
    assert list(catalog.snapshot.states) == ["slack"]
    assert names(catalog) == ["search", "send_message"]
    # Before the index without it is built, another server of its name comes up.
    catalog.on_state(running("github", MESSAGE))
    assert names(catalog) == ["search", "send_message"]
    await catalog.caught_up()
    assert names(catalog) == ["github__send_message", "search", "slack__send_message"]
    assert catalog.snapshot.baseline_tokens == sum(tool.tokens for tool in catalog.snapshot.running)


async def test_a_listing_that_is_taken_in_when_its_server_goes_never_arrives() -> None:
    catalog = await live_catalog(SLACK)
    catalog.on_state(GITHUB)
    await asyncio.sleep(0)
    catalog.forget("github")
    await catalog.caught_up()
    assert names(catalog) == ["search", "send_message"]
    assert list(catalog.snapshot.states) == ["slack"]
