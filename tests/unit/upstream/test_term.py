"""Servers that begin together leave turns of the event loop to others."""

from __future__ import annotations

import asyncio
import itertools

import anyio

from mcp_optimizer.upstream.lifetimes import begin_serving


async def test_thousands_of_servers_do_not_begin_in_one_turn_of_the_loop() -> None:
    begun, seen = 0, [0]

    async def serve() -> None:
        nonlocal begun
        begun += 1

    async def look() -> None:
        while begun < 5_000:
            seen.append(begun)
            await asyncio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await begin_serving([serve] * 5_000, tasks)
    assert begun == 5_000
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) <= 200
