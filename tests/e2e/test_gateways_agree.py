"""Two gateways on one database: what one writes or decides holds at the other, and both list the same tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.access.callers.keys import Wanted, new_key, opened_keys
from mcp_optimizer.catalog.ingestion import EmbeddingTurns
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.profiles.lists import Presentation
from mcp_optimizer.profiles.tiers import ProfileName, Tier
from tests.conftest import WriteServers, plain_server
from tests.e2e.test_rug_pull import POISONED, RELIST, World
from tests.postgres import Postgres, ask
from tests.waiting import until

CACHED = {"echo": {"cache_seconds": 600}}


@asynccontextmanager
async def two_gateways(
    config: Path | None, place: Path | str, **more: Any
) -> AsyncIterator[tuple[Optimizer, Optimizer]]:
    options: dict[str, Any] = {"database": str(place), "encoder": "none", "tool_results": CACHED, **more}
    async with Optimizer.from_config(config, **options) as one, Optimizer.from_config(config, **options) as two:
        for optimizer in (one, two):
            await until(optimizer.parts.announcements.is_current)
        yield one, two


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one", "--tools", 40), "far": plain_server("far")})


async def is_cached(optimizer: Optimizer, server: str = "one") -> bool:
    result = await optimizer.call("echo", {"value": "x"}, server)
    return bool(result["_meta"]["performance"].get("cachedResult"))


async def is_read_again(optimizer: Optimizer) -> bool:
    return not await is_cached(optimizer)


async def test_after_a_write_no_gateway_serves_what_was_read_before(config: Path, place: Path | str) -> None:
    async with two_gateways(config, place) as (one, two):
        for optimizer in (one, two):
            assert [await is_cached(optimizer) for _ in range(2)] == [False, True]
            assert [await is_cached(optimizer, "far") for _ in range(2)] == [False, True]
        await one.call("sleep", {"seconds": 0}, "one")
        # The other looks into a file itself; PostgreSQL tells it, within milliseconds of the reply unless all is busy.
        await until(lambda: is_read_again(two))
        assert [await is_cached(two), await is_cached(two, "far")] == [True, True]


async def test_a_gateway_that_does_not_hear_the_others_serves_nothing_from_its_cache(
    config: Path, postgres: Postgres, postgres_url: str
) -> None:
    async with two_gateways(config, postgres_url) as (one, two):
        assert [await is_cached(two) for _ in range(2)] == [False, True]
        with postgres.stopped():
            await until(lambda: not two.parts.announcements.is_current())
            assert not await is_cached(two)
            async with asyncio.timeout(5):
                await one.call("sleep", {"seconds": 0}, "one")
        await until(two.parts.announcements.is_current, timeout=30)
        await until(one.parts.announcements.is_current, timeout=30)
        assert not await is_cached(two)
        # What was announced late clears it once more.
        await until(lambda: is_cached(two))


async def test_what_anybody_writes_to_the_channel_does_no_harm(config: Path, postgres_url: str) -> None:
    async with two_gateways(config, postgres_url) as (_, two):
        assert [await is_cached(two) for _ in range(2)] == [False, True]
        for body in ("", "{", '{"v":1}', "x" * 7_900, '{"v":1,"by":"x","news":"written","names":["far"]}'):
            await asyncio.to_thread(ask, postgres_url, f"NOTIFY mcp_optimizer, '{body}'")
        await until(lambda: is_cached(two))


async def test_a_tool_that_is_used_at_one_gateway_is_listed_by_both_in_the_same_order(
    place: Path | str,
) -> None:
    async with two_gateways(None, place, demo=True) as (one, two):
        shown, profile = Presentation(), ProfileName.STANDARD

        async def listed(optimizer: Optimizer) -> str:
            return json.dumps((await optimizer.parts.refresher.listed(profile, shown)).definitions)

        before = await listed(one)
        assert before == await listed(two)
        tiers = one.lists.profiles().tier_of
        later = sorted(name for name, tier in tiers.items() if tier is Tier.RARE)
        # Each promotes another at the same time.
        await asyncio.gather(
            one.parts.refresher.promote(later[1], profile, shown), two.parts.refresher.promote(later[0], profile, shown)
        )

        async def is_same() -> bool:
            first, second = await listed(one), await listed(two)
            return first == second != before and later[0] in first and later[1] in first

        await until(is_same)
    async with Optimizer.from_config(demo=True, database=str(place), encoder="none") as third:

        async def is_listed() -> bool:
            return later[0] in await listed(third)

        await until(is_listed)


def hear(heard: list[tuple[str, ...]], names: Sequence[str]) -> None:
    heard.append(tuple(names))


def is_held(optimizer: Optimizer) -> bool:
    return "send_letter" not in optimizer.snapshot.by_name


async def test_what_is_decided_at_one_gateway_or_by_a_command_is_told_to_all(
    place: Path | str, tmp_path: Path, write_servers: WriteServers
) -> None:
    world = World(tmp_path)
    config = write_servers({"post": world.local})
    async with two_gateways(config, place, trust_local="block") as (one, two):
        told: dict[ChangeKind, list[tuple[str, ...]]] = {
            news: [] for news in (ChangeKind.APPROVED, ChangeKind.KEYS, ChangeKind.ENDED)
        }
        for news, heard in told.items():
            two.parts.announcements.listen(news, partial(hear, heard))
        world.lists(RELIST, POISONED)
        for optimizer in (one, two):
            await optimizer.call("relist")
            await until(partial(is_held, optimizer))
        waiting = (await one.keeper.pins("post")).waiting_tools
        assert await one.keeper.approve("post", {"send_letter": waiting["send_letter"].hash}, "ada") == ["send_letter"]
        await until(lambda: ("post",) in told[ChangeKind.APPROVED])
        await until(lambda: "send_letter" in two.snapshot.by_name)

        async with opened_keys(place) as keys:
            key, _ = new_key(Wanted("ada", None, Risk.READ, Role.NONE), datetime.now(UTC))
            assert await keys.add(key, 10) == ""
            await until(lambda: len(told[ChangeKind.KEYS]) == 1)
            assert await keys.revoke("ada", key.created_at_ms + 1)
            await until(lambda: len(told[ChangeKind.KEYS]) == 2)

        stored = await one.storage.gateways()
        assert stored is not None
        await stored.end_session("a hash", 2**40, 0)
        await until(lambda: ("a hash",) in told[ChangeKind.ENDED])
        assert await stored.ended_among(["a hash", "another"]) == {"a hash"}


async def test_three_gateways_that_start_together_embed_each_tool_once(postgres_url: str) -> None:
    options: dict[str, Any] = {"database": postgres_url, "encoder": "static", "demo": True}
    gateways = [Optimizer.from_config(**options) for _ in range(3)]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(gateway) for gateway in gateways))
        for gateway in gateways:
            await until(partial(knows_all_meanings, gateway), timeout=30)
        assert sum(gateway.ingestion.embedded for gateway in gateways) == len(gateways[0].snapshot.tools)


def knows_all_meanings(optimizer: Optimizer) -> bool:
    index = optimizer.snapshot.index
    return index.size > 0 and not index.by_words_only


async def test_nobody_waits_for_a_gateway_that_embeds_nothing_in_its_turn(postgres_url: str) -> None:
    now = 0.0
    async with Optimizer.from_config(database=postgres_url, encoder="none", demo=True) as holder:
        catalog = await holder.storage.catalog()
        assert catalog is not None
        turns = EmbeddingTurns(holder.storage.catalog, clock=lambda: now)
        held = await catalog.embedding_turn()
        assert held is not None
        async with turns.next() as is_ours:
            assert not is_ours
        now = 21.0
        async with turns.next() as is_ours:
            assert is_ours
        turns.progressed()
        await held.release()
        async with turns.next() as is_ours:
            assert is_ours
            assert await catalog.embedding_turn() is None
