"""The deadline of a request: whatever it waits for ends in time, and one timer serves all requests of a connection."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

import pytest

from mcp_optimizer.limits import DEFAULT_LIMITS
from mcp_optimizer.upstream.exchanges import Deadlines, Exchange
from mcp_optimizer.upstream.peer import Message, Peer
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcTimeout
from tests import waiting


class Wire:
    """Delivers a request when it may, or never."""

    def __init__(self, *, is_stuck: bool = False, on_cancel: Exception | None = None) -> None:
        self.sent: list[Message] = []
        self._is_stuck = is_stuck
        self._on_cancel = on_cancel

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        self.sent.append(message)
        if self._is_stuck and "id" in message:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise self._on_cancel or asyncio.CancelledError from None

    def cancelled(self) -> list[int]:
        return [message["params"]["requestId"] for message in self.sent if "id" not in message]


def peer_on(wire: Wire, call_seconds: float = 60.0) -> Peer:
    peer = Peer(lambda _method, _params: None, limits=DEFAULT_LIMITS.model_copy(update={"call_seconds": call_seconds}))
    peer.bind(wire)
    return peer


def calling(peer: Peer, seconds: float | None) -> asyncio.Task[dict[str, object]]:
    return asyncio.create_task(peer.request("tools/call", {}, seconds))


async def test_a_request_that_cannot_be_delivered_ends_in_time_and_its_task_goes_on() -> None:
    wire = Wire(is_stuck=True)
    peer = peer_on(wire)
    with pytest.raises(RpcTimeout, match=r"not answered within 0.05 s"):
        await peer.request("tools/call", {}, 0.05)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    await waiting.until(wire.cancelled, "the server is told")
    assert peer.is_idle


async def test_each_of_several_requests_has_its_own_deadline() -> None:
    wire = Wire()
    peer = peer_on(wire)
    late, soon, never = calling(peer, 30), calling(peer, 0.05), calling(peer, None)
    with pytest.raises(RpcTimeout):
        await asyncio.wait_for(soon, 5)
    after = calling(peer, 0.05)
    with pytest.raises(RpcTimeout):
        await asyncio.wait_for(after, 5)
    assert not late.done()
    assert not never.done()
    await waiting.until(lambda: wire.cancelled() == [2, 4], "the server is told")
    for number in (1, 3):
        peer.receive({"id": number, "result": {}})
    assert (await late, await never) == ({}, {})


async def test_a_request_whose_client_left_is_cancelled_and_not_late() -> None:
    wire = Wire()
    peer = peer_on(wire)
    call = calling(peer, 30)
    await waiting.until(lambda: wire.sent, "it is sent")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await waiting.until(wire.cancelled, "the server is told")
    assert wire.sent[-1]["params"]["reason"] == "the client cancelled it"


async def test_a_sign_of_life_gives_more_time_but_not_without_end() -> None:
    wire = Wire()
    peer = peer_on(wire, call_seconds=1.0)
    call = calling(peer, 0.6)
    await waiting.until(lambda: wire.sent, "it is sent")
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not call.done():
        peer.receive({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
        await asyncio.wait({call}, timeout=0.02)
    assert loop.time() - began > 0.8
    with pytest.raises(RpcTimeout) as ended:
        await call
    assert ended.value.in_all


async def test_a_request_without_an_end_in_all_is_still_interrupted_when_it_is_silent_after_a_question() -> None:
    exchanges: dict[int, Exchange] = {}
    limits = DEFAULT_LIMITS.model_copy(update={"call_seconds": math.inf})
    exchange = exchanges[1] = Exchange(None, 0.1, None, limits, Deadlines(exchanges))
    with exchange.asking():
        assert exchange.ends_at == math.inf
    with pytest.raises(asyncio.CancelledError) as interrupted:
        await asyncio.Event().wait()
    late = exchange.give_up("tools/call", interrupted.value)
    assert str(late) == str(RpcTimeout("tools/call", 0.1))


async def test_what_a_transport_makes_of_its_interruption_is_the_error_and_the_task_goes_on() -> None:
    peer = peer_on(Wire(is_stuck=True, on_cancel=ExchangeLost("broken off")))
    with pytest.raises(ExchangeLost, match="broken off"):
        await peer.request("tools/call", {}, 0.05)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
