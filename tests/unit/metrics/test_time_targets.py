"""The times that the source documents allow: for counting, for the metrics of a search, for profiles, for checks.

Measured as processor time, the best of several runs, because the machine may have other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.domain.tools import McpTool, TokenMetrics
from mcp_optimizer.gateway.arguments import ArgumentCheck
from mcp_optimizer.metrics.tool_sizes import measure_tool_tokens
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.tiers import DEFAULT_BUDGETS, ProfileName, Tier
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import live_catalog, mcp_tool, new_gateway, running
from tests.unit.mcp_optimizer_demo.kanban_tools import kanban_tools
from tests.unit.mcp_optimizer_demo.sample_calls import KANBAN_CALLS

COUNTER = TokenCounter()


def milliseconds(work: Callable[[], object], times: int = 5) -> float:
    def once() -> float:
        started = time.process_time()
        work()
        return (time.process_time() - started) * 1000

    return min(once() for _ in range(times))


def many_tools(number: int) -> list[McpTool]:
    """So many tools of the kanban server's size, which is twice the usual, each with a name of its own."""
    known = kanban_tools()
    return [known[at % len(known)].model_copy(update={"name": f"tool_{at}"}) for at in range(number)]


@pytest.mark.slow
@pytest.mark.requirement("A8", "SC-002", "R-4.1", "R-4.3")
@pytest.mark.parametrize(("tools", "most"), [(200, 50), (1_000, 250)])
def test_tools_are_counted_in_less_than_a_quarter_of_a_millisecond_each(tools: int, most: int) -> None:
    # Half as many, because those of the kanban server are twice the usual size.
    texts = [tool.model_dump_json() for tool in many_tools(tools // 2)]
    COUNTER.count_many(texts[:1])
    assert milliseconds(lambda: COUNTER.count_many(texts)) < most


@pytest.mark.slow
@pytest.mark.requirement("A8", "SC-006", "R-4.2")
async def test_the_metrics_of_a_search_take_less_than_a_millisecond_with_2000_tools() -> None:
    tools = [mcp_tool(f"issue_{number}", f"Do something with issue {number}") for number in range(2_000)]
    catalog = await live_catalog(running("many", *tools))
    gateway = new_gateway(catalog)
    found = gateway.find("issue", limit=20)
    assert found.token_metrics.baseline_tokens == sum(map(COUNTER.count_tool_tokens, tools))

    def metrics() -> TokenMetrics:
        # From the counts that are kept: neither all tools nor any text is gone through.
        return TokenMetrics.of(catalog.snapshot.baseline_tokens, sum(hit.tool.tokens for hit in found.tools))

    assert milliseconds(metrics) < 1


def check_anew(tool: McpTool) -> None:
    """Read the schema, too: a check that is kept has done so before."""
    ArgumentCheck().check(KANBAN_CALLS[tool.name], tool, tool.definition_hash)


@pytest.mark.requirement("B7", "PF-1")
def test_the_arguments_of_each_kanban_tool_are_checked_in_less_than_10_milliseconds() -> None:
    for tool in kanban_tools():
        assert milliseconds(partial(check_anew, tool), 3) < 10, tool.name


@pytest.mark.slow
@pytest.mark.requirement("B7", "PF-2")
@pytest.mark.parametrize("profile", ProfileName)
async def test_any_profile_is_registered_in_less_than_2_seconds(profile: ProfileName) -> None:
    catalog = await live_catalog(running("kanban", *kanban_tools()))

    def register() -> None:
        assert ToolLists(catalog, ToolForms(COUNTER), COUNTER).listed(profile).definitions

    assert milliseconds(register, 1) < 2_000


@pytest.mark.requirement("B7", "PF-4")
async def test_a_tool_is_registered_after_its_first_use_in_less_than_100_milliseconds() -> None:
    light = [mcp_tool(f"do_thing_{number}", "Does one thing.", {"of": {"type": "string"}}) for number in range(60)]
    budgets = {**DEFAULT_BUDGETS, ProfileName.MINIMAL: 2_000}
    catalog = await live_catalog(running("many", *light))
    lists = ToolLists(catalog, ToolForms(COUNTER), COUNTER, budgets=budgets)
    lists.listed(ProfileName.MINIMAL)
    later = next(name for name, tier in lists.profiles().tier_of.items() if tier is Tier.COMMON)

    def load() -> None:
        assert lists.promote(later, ProfileName.MINIMAL)
        assert lists.listed(ProfileName.MINIMAL).definitions[-1]["name"] == later

    assert milliseconds(load, 1) < 100


@pytest.mark.requirement("B7", "PF-3")
def test_each_kanban_tool_is_measured_in_less_than_10_milliseconds() -> None:
    for tool in kanban_tools():
        assert milliseconds(partial(measure_tool_tokens, tool, COUNTER, "baseline"), 3) < 10, tool.name
