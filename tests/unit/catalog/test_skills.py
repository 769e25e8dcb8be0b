"""Skills in the catalog: found and counted beside tools, and in no list of tools."""

from __future__ import annotations

from dataclasses import replace

import pytest_asyncio

from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.domain.pins import ToolChange, TrustMode
from mcp_optimizer.domain.skills import definition_of, skill_of
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import live_catalog, mcp_tool, running


def skill(name: str = "refunds", description: str = "Refund a customer.", size: int = 400) -> Definition:
    uri = f"skill://{name}/SKILL.md"
    file = {"uri": uri, "digest": f"sha256:{'0' * 64}", "size": size}
    entry = {"uri": uri, "frontmatter": {"name": name, "description": description}, "resources": [file]}
    return definition_of(entry, skill_of(entry))


def with_skills(*skills: Definition) -> UpstreamState:
    state = running("shop", mcp_tool("pay", "Pay a bill"))
    return replace(state, listing=Listing((*state.listing.tools, *skills)))


@pytest_asyncio.fixture
async def snapshot() -> Snapshot:
    return (await live_catalog(with_skills(skill()))).snapshot


async def test_a_skill_is_found_under_a_name_with_its_server_and_is_in_no_list_of_tools(snapshot: Snapshot) -> None:
    [found] = snapshot.skills
    assert found.name == "shop__skill_refunds"
    assert [tool.name for tool in snapshot.running] == ["pay"]
    assert [tool.name for tool in snapshot.callable] == ["pay"]
    assert [tool.name for tool in snapshot.of_server("shop")] == ["pay"]
    assert "shop__skill_refunds" not in snapshot.by_name
    assert snapshot.allowed.sum() == 2
    assert snapshot.allowed_tools.sum() == 1
    assert snapshot.confined(["shop"]).skills[0].name == found.name


async def test_a_skill_costs_what_a_host_shows_of_it(snapshot: Snapshot) -> None:
    cost = TokenCounter().count_tokens("refunds: Refund a customer.")
    [pay] = snapshot.running
    assert snapshot.skills[0].tokens == cost
    assert snapshot.baseline_tokens == pay.tokens + cost
    assert snapshot.sent_tokens == pay.record.sent_tokens + cost


async def nothing() -> None:
    return None


async def test_a_skill_that_is_only_known_by_its_uri_is_compared_like_one_that_is_listed() -> None:
    keeper = PinKeeper(nothing, {"shop": TrustMode.BLOCK})
    state = with_skills(skill())
    await keeper.admit(state)
    await keeper.settled()
    assert await keeper.objection(state, skill()) is None
    changed, new = skill(size=401), skill("returns")
    for definition, change in ((changed, ToolChange.CHANGED), (new, ToolChange.NEW)):
        held = await keeper.objection(state, definition)
        assert held is not None
        assert held.change is change
    waiting = (await keeper.pins("shop")).waiting_tools
    assert list(waiting) == ["skill:refunds", "skill:returns"]
    await keeper.approve("shop", {"skill:returns": waiting["skill:returns"].version}, "me")
    assert await keeper.objection(state, new) is None
    trusting = PinKeeper(nothing, {"shop": TrustMode.WARN})
    await trusting.admit(state)
    assert await trusting.objection(state, changed) is None
