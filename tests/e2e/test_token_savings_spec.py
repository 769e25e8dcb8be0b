"""The acceptance scenarios and edge cases of the token savings specification, by their names, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_optimizer import FindToolResponse, McpTool, Optimizer, TokenCounter
from tests.conftest import WriteServers, plain_server

COUNTER = TokenCounter()


def tokens(tools: list[McpTool]) -> int:
    """The tokens of definitions as their servers sent them."""
    return sum(COUNTER.count_tokens(tool.model_dump_json()) for tool in tools)


@pytest.fixture
def three_servers_with_fifty_tools(write_servers: WriteServers) -> Path:
    return write_servers(
        {
            "web": plain_server("web", "--tools", 20),
            "files": plain_server("files", "--tools", 20),
            "mail": plain_server("mail", "--tools", 10),
        }
    )


@pytest.mark.requirement("US1.1", "FR-004", "FR-005", "DM-lifecycle-2")
async def test_scenario_1_savings_are_the_difference_between_50_tools_and_the_5_returned(
    three_servers_with_fifty_tools: Path,
) -> None:
    async with Optimizer.from_config(three_servers_with_fifty_tools) as optimizer:
        all_tools = [tool.definition for tool in optimizer.snapshot.running]
        found = await optimizer.find("perform an action on a thing of the web", limit=5, detail="full")
    assert len(all_tools) == 50
    assert len(found.tools) == 5
    assert found.token_metrics.baseline_tokens == tokens(all_tools)
    assert found.token_metrics.returned_tokens == tokens(found.tools)
    assert found.token_metrics.tokens_saved == tokens(all_tools) - tokens(found.tools)
    assert found.token_metrics.savings_percentage == pytest.approx(
        100 * (1 - tokens(found.tools) / tokens(all_tools)), abs=0.01
    )


@pytest.mark.requirement("SC-005")
@pytest.mark.parametrize("limit", [1, 5, 24])
async def test_returning_fewer_than_half_of_the_tools_saves_measurably(
    three_servers_with_fifty_tools: Path, limit: int
) -> None:
    async with Optimizer.from_config(three_servers_with_fifty_tools) as optimizer:
        found = await optimizer.find("perform an action on a thing", limit=limit, detail="full")
    assert 0 < len(found.tools) <= limit < 25
    assert found.token_metrics.tokens_saved > 0
    assert found.token_metrics.savings_percentage > 40


@pytest.mark.requirement("US1.2", "FR-008", "A7")
async def test_scenario_2_no_running_servers_shows_zero_savings(write_servers: WriteServers) -> None:
    broken = {"command": "no-such-command-anywhere"}
    async with Optimizer.from_config(write_servers({"gone": broken}), wait=5) as optimizer:
        found = await optimizer.find("search the web")
    assert_zero_savings(found)
    assert "gone (failed)" in (found.note or "")


@pytest.mark.requirement("US1.3", "FR-009", "EC-1", "A7")
@pytest.mark.parametrize("detail", ["signature", "schema", "full"])
async def test_scenario_3_returning_all_available_tools_shows_zero_savings(
    write_servers: WriteServers, detail: str
) -> None:
    path = write_servers({"one": plain_server("one", "--tools", 9)})
    async with Optimizer.from_config(path) as optimizer:
        everything = "echo sleep die picture facts refuse fail environment grow"
        found = await optimizer.find(everything, limit=50, detail=detail)
    assert len(found.tools) == 9
    assert found.token_metrics.baseline_tokens == found.token_metrics.returned_tokens > 0
    assert found.token_metrics.tokens_saved == 0
    assert found.token_metrics.savings_percentage == 0.0


@pytest.mark.requirement("EC-1", "FR-009")
async def test_edge_case_all_tools_match_the_query_saves_nothing_even_when_names_collide(
    write_servers: WriteServers,
) -> None:
    path = write_servers({"a": plain_server("a", "--tools", 3), "b": plain_server("b", "--tools", 3)})
    async with Optimizer.from_config(path) as optimizer:
        found = await optimizer.find("say wait end process answering", limit=50, detail="full")
    assert {tool.name for tool in found.tools} == {f"{s}__{t}" for s in "ab" for t in ("echo", "sleep", "die")}
    assert found.token_metrics.tokens_saved == 0
    assert found.token_metrics.returned_tokens == tokens(found.tools)


@pytest.mark.requirement("EC-2", "FR-008")
async def test_edge_case_no_tools_available_from_running_servers_is_zero_not_an_error(
    write_servers: WriteServers,
) -> None:
    async with Optimizer.from_config(write_servers({"empty": plain_server("empty", "--tools", 0)})) as optimizer:
        assert [state.status for state in optimizer.servers()] == ["running"]
        assert_zero_savings(await optimizer.find("anything at all"))


async def test_edge_case_no_servers_configured_is_zero_not_an_error(write_servers: WriteServers) -> None:
    async with Optimizer.from_config(write_servers({})) as optimizer:
        assert_zero_savings(await optimizer.find("anything at all"))


@pytest.mark.requirement("EC-3", "FR-001")
async def test_edge_case_tools_of_very_different_size_are_each_counted_by_their_own_size() -> None:
    async with Optimizer.from_config(demo=True) as optimizer:
        sizes = {tool.name: tool.tokens for tool in optimizer.snapshot.running}
        counted = {
            tool.name: COUNTER.count_tokens(tool.definition.model_dump_json()) for tool in optimizer.snapshot.running
        }
    assert sizes == counted
    assert max(sizes.values()) > 10 * min(sizes.values())


@pytest.mark.requirement("EC-4", "R-2")
@pytest.mark.promise("counted-as-sent")
async def test_edge_case_complex_schemas_and_long_descriptions_are_counted_as_sent_on_the_wire() -> None:
    async with Optimizer.from_config(demo=True) as optimizer:
        found = await optimizer.find("create_card", limit=1, detail="full")
    [tool] = found.tools
    assert tool.name == "create_card"
    wire = json.dumps(json.loads(tool.model_dump_json()), ensure_ascii=False, separators=(",", ":"))
    assert found.token_metrics.returned_tokens == COUNTER.count_tokens(wire) > 1_000


def assert_zero_savings(found: FindToolResponse) -> None:
    assert found.tools == []
    assert found.token_metrics.model_dump() == {
        "baseline_tokens": 0,
        "returned_tokens": 0,
        "tokens_saved": 0,
        "savings_percentage": 0.0,
    }
