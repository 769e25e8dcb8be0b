"""What a change costs is proportional to the server that changed, however many there are."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import down, live_catalog, mcp_tool, running

SERVERS = 200
EACH = 3


def server(number: int, word: str = "works") -> UpstreamState:
    return running(f"server{number}", *(mcp_tool(f"tool_{number}_{one}", f"It {word}") for one in range(EACH)))


async def many_servers() -> LiveCatalog:
    return await live_catalog(*(server(number) for number in range(SERVERS)))


@pytest.mark.slow
async def test_when_one_of_two_hundred_servers_changes_its_state_only_its_tools_are_composed_again() -> None:
    catalog = await many_servers()
    before = catalog.snapshot
    catalog.on_state(down("server7"))
    during = catalog.snapshot
    assert sum(now is not then for now, then in zip(during.tools, before.tools, strict=True)) == EACH
    assert during.index is before.index
    assert during.names is before.names
    catalog.on_state(server(7))
    assert all(now is then for now, then in zip(catalog.snapshot.tools, before.tools, strict=True))


@pytest.mark.slow
async def test_when_one_of_two_hundred_servers_lists_other_tools_all_others_keep_theirs() -> None:
    catalog = await many_servers()
    before = {tool.key: tool for tool in catalog.snapshot.running}
    catalog.on_state(server(7, "was replaced"))
    await catalog.caught_up()
    changed = [tool for tool in catalog.snapshot.running if before[tool.key] is not tool]
    assert [tool.server for tool in changed] == ["server7"] * EACH


async def test_two_hundred_changes_in_one_turn_of_the_loop_are_told_once_and_make_one_snapshot() -> None:
    catalog = await many_servers()
    seen = list[object]()

    async def follow() -> None:
        while True:
            await catalog.changed()
            seen.append(catalog.snapshot)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    for number in range(SERVERS):
        catalog.on_state(down(f"server{number}"))
    await catalog.changed()
    await asyncio.sleep(0)
    following.cancel()
    assert len(seen) == 1
    assert seen[0] is catalog.snapshot
    assert not catalog.snapshot.running
