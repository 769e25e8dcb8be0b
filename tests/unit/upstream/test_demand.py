"""Servers that start when they are needed, and stop when nothing has used them for a while."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import ServerSpec, Start, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.upstream.state import KnownServer
from tests.unit.upstream.fake_server import FakeServer, called
from tests.unit.upstream.running_pool import QUICK, Running, running
from tests.waiting import until

LAZY = replace(QUICK, start=Start.ON_DEMAND, idle_timeout=0)
RESTLESS = replace(LAZY, idle_timeout=0.05)
ADDS: dict[str, Any] = {"tools/call": lambda params: called(str(params["arguments"]["a"]))}


async def known(_spec: ServerSpec) -> KnownServer | None:
    return KnownServer(3, "2025-11-25", "1.0", {"tools": {}, "prompts": {}}, "Adds.")


async def unknown(_spec: ServerSpec) -> KnownServer | None:
    return None


async def until_resting(servers: Running) -> None:
    await servers.until(lambda: servers.state().status is ServerStatus.RESTING)


async def test_a_server_that_is_known_does_not_start_and_says_what_it_said_before() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        state = servers.state()
        assert (state.listing.size, state.instructions, set(state.capabilities)) == (3, "Adds.", {"tools", "prompts"})
        await servers.pool.settled(5)
        assert server.lives == []


async def test_the_first_call_starts_it_and_waits_for_it() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        assert await servers.call(a=7) == called("7")
        assert len(server.lives) == 1


async def test_two_hundred_first_calls_at_once_start_it_once() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        replies = await asyncio.gather(*(servers.call(a=number) for number in range(200)))
        assert replies == [called(str(number)) for number in range(200)]
        assert len(server.lives) == 1


@pytest.mark.parametrize("why", ["it was never listed", "its entry says so"])
async def test_other_servers_start_with_the_gateway(why: str) -> None:
    eager = ServerSpec("one", Transport.STDIO, command="one", start=Start.WITH_THE_GATEWAY)
    specs = [eager] if why == "its entry says so" else []
    recall = known if why == "its entry says so" else unknown
    async with running(*specs, one=FakeServer(ADDS), options=LAZY, recall=recall) as servers:
        await servers.until_up()


async def test_a_server_without_use_stops_and_starts_again_with_the_next_call() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=RESTLESS, recall=unknown) as servers:
        await servers.until_up()
        await until_resting(servers)
        assert servers.state().listing.size == 1
        await until(lambda: server.lives[0].has_ended)
        assert await servers.call(a=1) == called("1")
        assert len(server.lives) == 2


async def test_a_server_that_starts_with_the_gateway_never_rests() -> None:
    eager = ServerSpec("one", Transport.STDIO, command="one", start=Start.WITH_THE_GATEWAY, idle_timeout=0.01)
    async with running(eager, one=FakeServer(ADDS), options=RESTLESS, recall=known) as servers:
        await servers.until_up()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_resting(servers), 0.2)


async def test_a_call_in_progress_and_a_watched_resource_keep_a_server() -> None:
    server = FakeServer({"tools/call": None, "resources/subscribe": {}})
    async with running(one=server, options=RESTLESS, recall=unknown) as servers:
        await servers.until_up()
        calling = asyncio.create_task(servers.call(a=1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_resting(servers), 0.2)
        calling.cancel()
        await servers.pool.watch_resource("one", "file:///a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_resting(servers), 0.2)
        await servers.pool.unwatch_resource("one", "file:///a")
        await until_resting(servers)


async def test_a_server_that_does_not_start_any_more_says_why_and_is_tried_again() -> None:
    server = FakeServer(ADDS, refuses=OSError("its folder is gone"))
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        with pytest.raises(ServerUnavailable, match="its folder is gone"):
            await servers.call(a=1)
        server.refuses = None
        await servers.until_up()
        assert await servers.call(a=2) == called("2")


@pytest.mark.slow
async def test_calls_watches_and_stops_at_the_same_moment_lose_nothing() -> None:
    answers: dict[str, Any] = {**ADDS, "resources/subscribe": {}, "resources/unsubscribe": {}}
    server = FakeServer(answers)
    chance = random.Random(5)
    async with running(one=server, options=replace(LAZY, idle_timeout=0.002), recall=known) as servers:
        await until_resting(servers)
        for number in range(1_000):
            calls = [servers.call(a=number) for _ in range(chance.randrange(1, 3))]
            if chance.random() < 0.2:
                await servers.pool.watch_resource("one", "file:///a")
                calls.append(servers.call(a=number))
                await servers.pool.unwatch_resource("one", "file:///a")
            assert set(map(str, await asyncio.gather(*calls))) == {str(called(str(number)))}
            # Around the moment at which it stops.
            await asyncio.sleep(chance.choice([0, 0.0015, 0.002, 0.0025, 0.004]))
        assert len(server.lives) > 10


async def test_a_server_that_rests_can_be_removed_and_one_whose_entry_changed_starts_to_be_listed() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        servers.pool.apply([ServerSpec("one", Transport.STDIO, command="one", args=("other",))])
        await servers.until_up()
        servers.pool.apply([])
        with pytest.raises(ServerUnavailable, match="removed"):
            await servers.call(a=2)


async def test_a_gateway_that_stops_waits_for_no_server_that_rests() -> None:
    server = FakeServer(ADDS)
    async with running(one=server, options=LAZY, recall=known) as servers:
        await until_resting(servers)
        waiting = asyncio.create_task(servers.call(a=1))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await servers.pool.stop()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], dict | ServerUnavailable)
