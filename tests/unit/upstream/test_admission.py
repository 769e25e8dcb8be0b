"""So many calls at a time, so many waiting, and no more."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.errors import ServerBusy
from mcp_optimizer.upstream.admission import Admission


async def test_what_is_too_much_is_told_when_to_try_again_and_the_rest_gets_its_turn() -> None:
    admission = Admission("slow", most_under_way=2, most_waiting=3)
    at_once, most = 0, 0
    go_on = asyncio.Event()

    async def call() -> str:
        nonlocal at_once, most
        async with admission.admit():
            at_once += 1
            most = max(most, at_once)
            await go_on.wait()
            at_once -= 1
        return "done"

    calls = [asyncio.create_task(call()) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(ServerBusy, match=r"'slow' is busy: 2 calls in progress, 3 waiting. Try again in"):
        await call()
    emptied = asyncio.create_task(admission.emptied())
    await asyncio.sleep(0)
    assert not emptied.done()
    go_on.set()
    assert await asyncio.gather(*calls) == ["done"] * 5
    assert most == 2
    await asyncio.wait_for(emptied, 1)
    assert await call() == "done"


async def test_who_stops_waiting_frees_the_place() -> None:
    admission = Admission("slow", most_under_way=1, most_waiting=1)
    async with admission.admit():
        waiting = asyncio.create_task(admission.admit().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    async with asyncio.timeout(1), admission.admit():
        pass
