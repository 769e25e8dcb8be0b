"""Profiles, seen by a real client: which tools are registered directly or on first use, and within which budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import IncomingMessage

from mcp_optimizer import Optimizer, TokenCounter
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.profiles.tiers import ProfileName, Tier
from tests.conftest import WriteServers, plain_server
from tests.e2e.running import gateway_at, over_stdio, said_in, until_found

COUNTER = TokenCounter()
TWELVE = {"list_boards", "list_cards", "list_workspaces", "get_card", "get_board", "get_workspace"}
TWELVE |= {"create_card", "update_card", "move_card", "search_board", "health_check", "list_instances"}


@asynccontextmanager
async def demo_client(**options: Any) -> AsyncIterator[tuple[Optimizer, Client]]:
    async with (
        Optimizer.from_config(demo=True, database="none", **options) as optimizer,
        Client(optimizer.mcp_server(), mode="legacy") as client,
    ):
        yield optimizer, client


async def message_tokens(client: Client) -> int:
    """The tokens of `tools/list`, counted from the message as it is sent."""
    listed = await client.list_tools()
    tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
    return COUNTER.count_tokens(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.requirement("B3", "TP-1", "TP-6")
@pytest.mark.parametrize(("profile", "budget"), [("minimal", 9_000), ("standard", 20_000)])
async def test_a_profile_stays_within_its_budget_our_own_tools_included(profile: str, budget: int) -> None:
    async with demo_client(tool_profile=profile) as (_, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {tool["name"] for tool in OWN_TOOLS} <= names
        assert names >= TWELVE
        assert await message_tokens(client) <= budget


def without_description(tool: dict[str, Any]) -> int:
    rest = {key: value for key, value in tool.items() if key != "description"}
    return COUNTER.count_tokens(json.dumps(rest, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.requirement("B6", "PH-1", "PH-2")
async def test_recounted_the_schemas_of_the_three_largest_kanban_tools_lose_39_percent() -> None:
    three = {"create_card", "update_card", "list_cards"}
    async with demo_client(servers="kanban") as (optimizer, _):
        sent = {tool.name: json.loads(tool.record.definition.wire_json) for tool in optimizer.snapshot.running}
        listed = {tool["name"]: tool for tool in optimizer.lists.listed(ProfileName.FULL).definitions}
    before, after = (sum(without_description(tools[name]) for name in three) for tools in (sent, listed))
    assert after <= 0.61 * before
    # All that is left of a tool that is not registered is its place in the catalog.
    whole = {
        name: COUNTER.count_tokens(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))
        for name, tool in sent.items()
    }
    assert sum(whole.values()) - sum(whole[name] for name in TWELVE) >= 24_300


@pytest.mark.requirement("B2", "CX-2")
async def test_a_pair_that_became_one_is_called_in_either_shape_and_never_in_both() -> None:
    async with demo_client(tool_profile="minimal", servers="kanban") as (_, client):
        card = {"card_id": 127}
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "update_card"]
        assert "tag_ids" in tool.input_schema["properties"]
        for arguments in ({"tag_ids": {"add": [1]}}, {"tag_ids_to_add": [1]}, {"tag_ids": {"remove": [1]}}):
            assert not (await client.call_tool("update_card", {**card, **arguments})).is_error
        wrong: dict[str, dict[str, Any]] = {
            "the same parameter": {"tag_ids": {"add": [1]}, "tag_ids_to_add": [2]},
            "tag_ids: has no 'ad'; it takes add, remove": {"tag_ids": {"ad": [1]}},
            "tag_ids: must be an object": {"tag_ids": [1]},
            "tag_ids.add": {"tag_ids": {"add": ["one"]}},
        }
        for reason, given in wrong.items():
            answer = await client.call_tool("update_card", {**card, **given})
            assert answer.is_error
            assert reason in answer.content[0].model_dump()["text"]


@pytest.mark.requirement("B3", "TP-2", "TP-4", "TP-5")
async def test_on_the_kanban_server_minimal_is_exactly_the_twelve_tools_of_the_document() -> None:
    async with demo_client(tool_profile="minimal", servers="kanban") as (optimizer, client):
        listed = (await client.list_tools()).tools
        tiers = optimizer.lists.profiles().tier_of
    registered = [tool for tool in listed if tool.name not in {own["name"] for own in OWN_TOOLS}]
    assert {tool.name for tool in registered} == TWELVE == {name for name, tier in tiers.items() if tier is Tier.CORE}
    assert all(0 < len((tool.description or "").split()) <= 5 for tool in registered)


async def test_the_full_profile_registers_everything_and_a_registered_tool_is_called_by_its_name() -> None:
    async with demo_client(tool_profile="full") as (optimizer, client):
        listed = await client.list_tools()
        assert len(listed.tools) == len(OWN_TOOLS) + 85
        result = await client.call_tool("health_check", {})
        assert not result.is_error
        assert await message_tokens(client) < optimizer.snapshot.baseline_tokens


async def test_a_pinned_tool_is_in_the_smallest_profile_and_a_tiny_budget_drops_the_rest() -> None:
    async with demo_client(tool_profile="minimal", minimal_budget=800, pinned_tools="explainQuery") as (_, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "explainQuery" in names
        assert len(names) < 30
        assert await message_tokens(client) <= 800


@pytest.mark.requirement("B3", "TP-3", "TP-4")
async def test_every_tool_belongs_to_exactly_one_profile() -> None:
    async with demo_client() as (optimizer, _):
        profiles = optimizer.lists.profiles()
        assert set(profiles.tier_of) == set(optimizer.snapshot.by_name)
        minimal = set(profiles.by_name[ProfileName.MINIMAL].tools)
        assert minimal <= set(profiles.by_name[ProfileName.STANDARD].tools)
        assert {name for name, tier in profiles.tier_of.items() if tier is Tier.CORE} == minimal


@pytest.mark.requirement("TP-7")
async def test_a_tool_of_the_next_profile_is_registered_after_its_first_use_and_clients_are_told(
    write_servers: WriteServers,
) -> None:
    told = asyncio.Event()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    config = write_servers({"one": plain_server("one", "--tools", 100)})
    async with (
        Optimizer.from_config(config, tool_profile="minimal", minimal_budget=2_000) as optimizer,
        Client(optimizer.mcp_server(), mode="legacy", message_handler=on_message) as client,
    ):
        before = [tool.name for tool in (await client.list_tools()).tools]
        tier_of = optimizer.lists.profiles().tier_of
        chosen = next(name for name in tier_of if tier_of[name] is Tier.COMMON)
        await client.call_tool("call_tool", {"tool_name": chosen, "parameters": {}})
        assert [tool.name for tool in (await client.list_tools()).tools] == [*before, chosen]
        await asyncio.wait_for(told.wait(), 5)
        assert await message_tokens(client) <= 2_000


async def test_the_list_is_the_same_to_the_byte_after_a_restart(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one", "--tools", 60), "two": plain_server("two", "--tools", 60)})
    lists = []
    for _ in range(2):
        async with Optimizer.from_config(config, tool_profile="standard") as optimizer:
            lists.append(json.dumps(optimizer.lists.listed(ProfileName.STANDARD).definitions))
    assert lists[0] == lists[1]


@pytest.mark.requirement("TP-8")
async def test_a_client_chooses_its_profile_by_url(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    async with gateway_at(config) as address:
        async with Client(f"{address}?profile=full", mode="legacy") as client:
            await until_found(client, "draw a picture", "picture")
            assert len((await client.list_tools()).tools) == len(OWN_TOOLS) + 9
        async with Client(address, mode="legacy") as client:
            assert len((await client.list_tools()).tools) == len(OWN_TOOLS)


@pytest.mark.requirement("B2", "CX-2")
async def test_the_same_call_with_grouped_and_original_arguments_reaches_the_server_identically(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    config = write_servers({"one": plain_server("one", "--mode", "draws")})
    settings = tmp_path / "grouped.toml"
    settings.write_text("[groups.draw]\nposition = ['position_x', 'position_y']\n")
    async with over_stdio(config, "--settings", settings) as client:
        await until_found(client, "draw something at a place", "draw")
        answer = await client.call_tool(
            "find_tool", {"tool_description": "draw something at a place", "detail": "schema", "limit": 1}
        )
        [tool] = said_in(answer)["tools"]
        assert tool["inputSchema"]["properties"]["position"]["properties"].keys() == {"x", "y"}
        replies = []
        for parameters in ({"position": {"x": 1, "y": 2}}, {"position_x": 1, "position_y": 2}):
            result = await client.call_tool("call_tool", {"tool_name": "draw", "parameters": parameters})
            replies.append(result.content)
    assert replies[0] == replies[1]
