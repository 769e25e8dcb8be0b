"""So many calls at a time, so many waiting, and no more."""

from __future__ import annotations

import asyncio

import pytest

from mcp_optimizer.errors import ServerBusy
from mcp_optimizer.upstream.server_calls import Admission


async def test_what_is_too_much_is_told_when_to_try_again_and_the_rest_gets_its_turn() -> None:
    admission = Admission("slow", most_under_way=2, most_waiting=3)
    at_once, most = 0, 0
    go_on = asyncio.Event()

    async def call() -> str:
        nonlocal at_once, most
        began = await admission.begin()
        at_once += 1
        most = max(most, at_once)
        await go_on.wait()
        at_once -= 1
        admission.end(began)
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
    began = await admission.begin()
    waiting = asyncio.create_task(admission.begin())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert admission.waiting == 0
    admission.end(began)
    assert await asyncio.wait_for(admission.begin(), 1)


async def test_who_is_cancelled_in_the_moment_of_its_turn_passes_the_place_on() -> None:
    admission = Admission("slow", most_under_way=1, most_waiting=3)
    began = await admission.begin()
    first, second, third = (asyncio.create_task(admission.begin()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    admission.end(began)
    # The second has the place and does not know it yet.
    second.cancel()
    admission.end(await asyncio.wait_for(third, 1))
    assert (admission.under_way, admission.waiting) == (0, 0)
    await asyncio.wait_for(admission.emptied(), 1)


async def test_who_comes_first_gets_the_place_first() -> None:
    admission = Admission("slow", most_under_way=1, most_waiting=3)
    began = await admission.begin()
    order: list[int] = []

    async def call(number: int) -> None:
        started = await admission.begin()
        order.append(number)
        admission.end(started)

    calls = [asyncio.create_task(call(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    admission.end(began)
    # There is no place for whoever comes now: it is the first one's.
    await asyncio.gather(call(3), *calls)
    assert order == [1, 2, 3]


async def test_one_of_many_callers_leaves_half_of_the_places_to_others() -> None:
    admission = Admission("slow", most_under_way=4, most_waiting=8)
    flood = [asyncio.create_task(admission.begin("ada", is_one_of_many=True)) for _ in range(6)]
    await asyncio.sleep(0)
    assert (admission.under_way, admission.waiting) == (2, 4)
    with pytest.raises(ServerBusy):
        await admission.begin("ada", is_one_of_many=True)
    mine = await asyncio.wait_for(admission.begin("bob", is_one_of_many=True), 1)
    admission.end(mine)
    for task in flood[:2]:
        admission.end(await task)
    for task in flood[2:]:
        admission.end(await asyncio.wait_for(task, 1))
    assert (admission.under_way, admission.waiting) == (0, 0)


async def test_callers_who_wait_get_places_in_turn() -> None:
    admission = Admission("slow", most_under_way=2, most_waiting=20)
    places = [await admission.begin(name, is_one_of_many=True) for name in ("ada", "bob")]
    order: list[str] = []

    async def call(name: str) -> None:
        place = await admission.begin(name, is_one_of_many=True)
        order.append(name)
        admission.end(place)

    calls = [asyncio.create_task(call(name)) for name in ("ada", "ada", "ada", "ada", "bob", "eve")]
    await asyncio.sleep(0)
    admission.end(places[1])
    admission.end(places[0])
    await asyncio.gather(*calls)
    assert order.index("eve") < 4
    assert order.index("bob") < 4


async def test_who_has_the_gateway_alone_has_every_place() -> None:
    admission = Admission("slow", most_under_way=4, most_waiting=0)
    places = [await admission.begin("local") for _ in range(4)]
    with pytest.raises(ServerBusy):
        await admission.begin("local")
    for place in places:
        admission.end(place)
    await asyncio.wait_for(admission.emptied(), 1)
