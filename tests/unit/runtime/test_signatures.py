"""Signatures that all gateways of an installation make and know, from the first request on."""

from __future__ import annotations

import asyncio

from mcp_optimizer.runtime.signatures import Signatures
from tests.waiting import until

KEY = b"of the database"


def other_gateway() -> Signatures:
    async def read() -> bytes | None:
        return KEY

    return Signatures(read)


class SlowKey:
    """A key that is read when `come` is set; counts the attempts."""

    def __init__(self) -> None:
        self.come = asyncio.Event()
        self.attempts = 0

    async def read(self) -> bytes | None:
        self.attempts += 1
        await self.come.wait()
        return KEY


async def test_all_who_ask_while_the_key_is_read_wait_for_it() -> None:
    slow = SlowKey()
    ours = Signatures(slow.read)
    theirs = await other_gateway().sign("x", "said elsewhere")
    signing = [asyncio.create_task(ours.sign("x", f"text {number}")) for number in range(5)]
    knowing = asyncio.create_task(ours.is_ours("x", "said elsewhere", theirs))
    await until(lambda: slow.attempts)
    slow.come.set()
    made = await asyncio.gather(*signing)
    assert await knowing
    assert [await other_gateway().is_ours("x", f"text {number}", made[number]) for number in range(5)] == [True] * 5
    assert slow.attempts == 1


async def test_nobody_waits_long_for_the_key_and_it_is_used_when_it_comes() -> None:
    slow = SlowKey()
    ours = Signatures(slow.read, patience=0.05)
    own = await ours.sign("x", "text")
    assert await ours.is_ours("x", "text", own)
    assert not await other_gateway().is_ours("x", "text", own)
    assert ours.is_waiting
    async with asyncio.timeout(0.05):
        # Once the time is over, nobody else waits.
        for _ in range(100):
            await ours.sign("x", "text")
    slow.come.set()
    await until(lambda: not ours.is_waiting)
    assert await other_gateway().is_ours("x", "text", await ours.sign("x", "text"))
    assert await ours.is_ours("x", "text", own)
    assert slow.attempts == 1


async def test_a_key_that_cannot_be_read_is_read_again_after_a_pause() -> None:
    now, keys = [0.0], [None, None, KEY]

    async def read() -> bytes | None:
        return keys.pop(0)

    ours = Signatures(read, lambda: now[0], pause=5)
    for _ in range(3):
        await ours.sign("x", "text")
    assert (len(keys), ours.is_waiting) == (2, True)
    for _ in range(2):
        now[0] += 6
        await ours.sign("x", "text")
    assert (len(keys), ours.is_waiting) == (0, False)


async def test_without_a_database_nothing_is_waited_for() -> None:
    alone = Signatures()
    assert await alone.is_ours("x", "text", await alone.sign("x", "text"))
    assert not alone.is_waiting
    assert alone.shared_mark("x") not in ("", Signatures().shared_mark("x"), alone.shared_mark("y"))
