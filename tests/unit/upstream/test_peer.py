"""JSON-RPC with one server: what is sent, what comes back, and which client a message in between belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_optimizer.domain.caller import ClientLink
from mcp_optimizer.largejson.compact_json import parsed
from mcp_optimizer.upstream.peer import Message, Peer, to_wire
from mcp_optimizer.upstream.request_errors import RpcError, RpcTimeout, ServerGone


class Listening:
    """A client that records notifications and answers questions."""

    def __init__(self, key: str, pause: float = 0.0) -> None:
        self.key = key
        self.capabilities: Mapping[str, Any] = {}
        self.is_modern = False
        self.log_level: str | None = None
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.was_told = asyncio.Event()
        self._pause = pause

    @property
    def lasting(self) -> ClientLink:
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(self._pause)
        return {"asked": self.key}

    async def release_streams(self) -> None:
        """There is no stream to let go of."""

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append((method, params))
        self.was_told.set()


class Recorded:
    """A wire that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        self.sent.append(message)


def new_peer(owner: ClientLink | None = None) -> tuple[Peer, Recorded, list[str]]:
    noticed: list[str] = []
    peer, wire = Peer(lambda method, _params: noticed.append(method), owner), Recorded()
    peer.bind(wire)
    return peer, wire, noticed


async def sent(wire: Recorded, number: int) -> None:
    async with asyncio.timeout(5):
        while len(wire.sent) < number:
            await asyncio.sleep(0)


async def test_answers_find_their_requests_in_any_order_and_spelling() -> None:
    peer, wire, _ = new_peer()
    calls = [asyncio.create_task(peer.request("tools/call", {"n": n}, 5)) for n in (1, 2)]
    await sent(wire, 2)
    peer.receive({"jsonrpc": "2.0", "id": "2", "result": {"n": 2}})
    peer.receive([{"jsonrpc": "2.0", "id": 1, "result": {"n": 1}}, {"jsonrpc": "2.0", "id": 9, "result": {}}])
    assert [await call for call in calls] == [{"n": 1}, {"n": 2}]
    assert peer.is_idle


async def test_an_error_keeps_its_code_and_data_even_if_it_is_malformed() -> None:
    peer, wire, _ = new_peer()
    for error, code in (({"code": -5, "message": "no", "data": {"a": None}}, -5), ({"message": 7}, -32603)):
        call = asyncio.create_task(peer.request("tools/call", {}, 5))
        await sent(wire, len(wire.sent) + 1)
        peer.receive({"jsonrpc": "2.0", "id": wire.sent[-1]["id"], "error": error})
        with pytest.raises(RpcError) as caught:
            await call
        assert caught.value.code == code


async def test_progress_goes_to_the_client_of_the_request_under_its_own_token_and_before_the_result() -> None:
    peer, wire, _ = new_peer()
    ada, bob = Listening("ada"), Listening("bob")
    calls = [
        asyncio.create_task(peer.request("tools/call", {}, 5, link=client, progress_token="same"))
        for client in (ada, bob)
    ]
    await sent(wire, 2)
    tokens = [message["params"]["_meta"]["progressToken"] for message in wire.sent]
    assert tokens[0] != tokens[1]
    for done in (1, 2):
        peer.receive(
            {"method": "notifications/progress", "params": {"progressToken": tokens[1], "progress": done, "x": 1}}
        )
    for message in wire.sent:
        peer.receive({"id": message["id"], "result": {}})
    await asyncio.gather(*calls)
    assert ada.told == []
    expected = [{"progressToken": "same", "progress": done, "x": 1} for done in (1, 2)]
    assert [params for _, params in bob.told] == expected


async def test_a_question_is_asked_of_the_only_client_that_it_can_be_for() -> None:
    peer, wire, _ = new_peer()
    ada = Listening("ada")
    call = asyncio.create_task(peer.request("tools/call", {}, 5, link=ada))
    await sent(wire, 1)
    peer.receive({"id": "q", "method": "elicitation/create", "params": {}})
    await sent(wire, 2)
    assert wire.sent[1] == {"jsonrpc": "2.0", "id": "q", "result": {"asked": "ada"}}
    call.cancel()
    await asyncio.wait({call})


async def test_a_question_that_may_be_for_either_of_two_clients_is_asked_of_neither() -> None:
    peer, wire, _ = new_peer()
    calls = [asyncio.create_task(peer.request("tools/call", {}, 5, link=Listening(name))) for name in ("ada", "bob")]
    await sent(wire, 2)
    peer.receive({"id": "q", "method": "elicitation/create", "params": {}})
    await sent(wire, 3)
    assert wire.sent[2]["error"]["code"] == -32601
    # Unless the wire knows on whose stream it came.
    peer.receive({"id": "r", "method": "elicitation/create", "params": {}}, related=2)
    await sent(wire, 4)
    assert wire.sent[3]["result"] == {"asked": "bob"}
    peer.close()
    with pytest.raises(ServerGone):
        await calls[0]
    with pytest.raises(ServerGone):
        await calls[1]


async def test_pings_are_answered_and_what_belongs_to_no_call_goes_to_the_owner() -> None:
    owner = Listening("owner")
    peer, wire, noticed = new_peer(owner)
    peer.receive({"id": 1, "method": "ping"})
    await sent(wire, 1)
    assert wire.sent == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    peer.receive({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
    peer.receive({"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
    await asyncio.wait_for(owner.was_told.wait(), 5)
    assert owner.told == [("notifications/message", {"level": "info", "data": "hello"})]
    assert noticed == ["notifications/resources/updated"]


async def test_time_stands_still_while_the_client_is_being_asked() -> None:
    peer, wire, _ = new_peer()
    call = asyncio.create_task(peer.request("tools/call", {}, 0.1, link=Listening("slow", pause=0.3)))
    await sent(wire, 1)
    peer.receive({"id": "q", "method": "sampling/createMessage", "params": {}})
    await sent(wire, 2)
    peer.receive({"id": 1, "result": {"late": True}})
    assert await call == {"late": True}


async def test_a_request_that_takes_too_long_is_cancelled_at_the_server() -> None:
    peer, wire, _ = new_peer()
    with pytest.raises(RpcTimeout):
        await peer.request("tools/call", {}, 0.01)
    await sent(wire, 2)
    assert wire.sent[1]["method"] == "notifications/cancelled"
    assert wire.sent[1]["params"]["requestId"] == 1


def test_what_is_no_valid_text_passes_all_the_same() -> None:
    assert parsed(to_wire({"a": "\ud800", "b": 2**70})) == {"a": "\ud800", "b": 2**70}
