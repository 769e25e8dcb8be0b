"""Thousands of servers share the event loop: one slice of their work in each of its turns."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.upstream.listing import Listing, list_tools
from mcp_optimizer.upstream.pacing import Pacer
from mcp_optimizer.upstream.pool import UnsettledServers
from mcp_optimizer.upstream.state import UpstreamState


class LoopTurns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def stop(self) -> None:
        self._next.cancel()


async def test_of_two_hundred_that_want_to_begin_in_one_turn_of_the_loop_one_begins_in_each() -> None:
    pacer, turns, begun = Pacer(), LoopTurns(), Counter[int]()

    async def begin() -> None:
        await pacer.to_begin()
        begun[turns.number] += 1

    await asyncio.gather(*(begin() for _ in range(200)))
    turns.stop()
    assert begun.total() == 200
    assert max(begun.values()) == 1


async def test_whoever_goes_on_comes_before_whoever_wants_to_begin() -> None:
    pacer, order = Pacer(), list[str]()

    async def begin() -> None:
        await pacer.to_begin()
        order.append("began")

    async def go_on() -> None:
        await pacer.to_go_on()
        order.append("went on")

    await asyncio.gather(begin(), begin(), begin(), go_on())
    assert order == ["began", "went on", "began", "began"]


async def test_whoever_stops_waiting_takes_nobodys_turn() -> None:
    pacer = Pacer()
    await pacer.to_begin()
    waiting = asyncio.ensure_future(pacer.to_begin())
    after = asyncio.ensure_future(pacer.to_begin())
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(after, 5)
    await asyncio.wait_for(pacer.to_go_on(), 5)


async def test_while_many_listings_wait_to_be_read_no_further_server_begins() -> None:
    pacer, may_end = Pacer(), threading.Event()
    reading = [asyncio.ensure_future(pacer.in_thread(lambda: may_end.wait(10))) for _ in range(8)]
    await asyncio.sleep(0)
    beginning = asyncio.ensure_future(pacer.to_begin())
    await asyncio.wait_for(pacer.to_go_on(), 5)
    assert not beginning.done()
    may_end.set()
    await asyncio.wait_for(beginning, 5)
    await asyncio.gather(*reading)


async def test_a_long_listing_is_read_outside_of_the_event_loop() -> None:
    threads = set[int]()

    class Noted(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            threads.add(threading.get_ident())
            return super().get(key, default)

    async def request(_method: str, _params: dict[str, object]) -> dict[str, object]:
        return {"tools": [Noted(name=f"t{number}", inputSchema={"type": "object"}) for number in range(500)]}

    assert len((await list_tools(request, pacer=Pacer())).tools) == 500
    assert threads
    assert threading.get_ident() not in threads


def state(name: str, status: ServerStatus) -> UpstreamState:
    return UpstreamState(ServerSpec(name, Transport.STDIO, command="x"), status, Listing())


async def test_a_pool_is_settled_once_every_server_is_up_down_or_gone() -> None:
    starting = UnsettledServers(state(name, ServerStatus.STARTING) for name in "abc")
    over = asyncio.ensure_future(starting.over(30))
    starting.changed(state("a", ServerStatus.RUNNING))
    starting.changed(state("b", ServerStatus.FAILED))
    await asyncio.sleep(0)
    assert not over.done()
    starting.gone("c")
    await asyncio.wait_for(over, 5)
    starting.changed(state("b", ServerStatus.STARTING))
    again = asyncio.ensure_future(starting.over(0.01))
    await asyncio.wait_for(again, 5)
