"""The gate for clients: limited lines, ids of overlong lines, what can be sent, and what waits for a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_optimizer.limits import Limits
from mcp_optimizer.serving.gate import Gate, Refused
from mcp_optimizer.serving.messages import TooDeep, id_of, sendable
from mcp_optimizer.serving.relay.connected import Outbox
from mcp_optimizer.upstream.transports.bounded_lines import OverlongLine, lines


async def lines_of(data: bytes, most: int, step: int) -> list[bytes | str | int | None]:
    """The lines; instead of a line that was too long, its id."""

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(data), step):
            yield data[at : at + step]

    found = [line async for line in lines(chunks(), most, gives_up=False)]
    return [id_of(line) if isinstance(line, OverlongLine) else bytes(line) for line in found]


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" "))), st.integers(1, 40))
def test_lines_are_the_same_however_they_arrive(sent: list[bytes], step: int) -> None:
    data = b"".join(line + b"\n" for line in sent)
    found = asyncio.run(lines_of(data, 20, step))
    assert found == [line if len(line) <= 20 else None for line in sent]


@pytest.mark.parametrize("number", [7, "seven", -1])
@pytest.mark.parametrize("order", [("jsonrpc", "id", "method", "params"), ("method", "params", "jsonrpc", "id")])
@pytest.mark.parametrize("step", [1_000, 100_000])
async def test_the_id_of_a_request_that_is_too_long_is_found_at_either_end(
    number: Any, order: tuple[str, ...], step: int
) -> None:
    params = {"name": "x", "arguments": {"id": "wrong", "value": "x" * 20_000, "more": {"id": 99}}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    line = json.dumps({key: message[key] for key in order}).encode()
    assert await lines_of(line + b"\nnext\n", 10_000, step) == [number, b"next"]


async def test_messages_of_every_kind_are_told_apart() -> None:
    gate = Gate()
    read = [
        await gate.read(json.dumps({"jsonrpc": "2.0", **message}).encode())
        for message in (
            {"id": 1, "method": "ping"},
            {"method": "notifications/initialized"},
            {"id": "a", "result": {}},
            {"id": "a", "error": {"code": 1, "message": "no"}},
        )
    ]
    assert [type(message) for message in read] == [JSONRPCRequest, JSONRPCNotification, JSONRPCResponse, JSONRPCError]
    assert gate.refused == {}


@pytest.mark.slow
async def test_a_large_message_is_the_same_as_a_small_one_and_half_pairs_in_it_are_refused() -> None:
    gate = Gate()
    params: dict[str, Any] = {"arguments": {"text": "ä\n" * 1_000_000, "list": list(range(1_000))}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    read = await gate.read(json.dumps(message).encode())
    assert isinstance(read, JSONRPCRequest)
    assert read.params == params
    params["arguments"]["text"] += "\ud800"
    with pytest.raises(Refused) as refused:
        await gate.read(json.dumps(message).encode())
    assert refused.value.code == -32700
    assert gate.refused == {"json": 1}


async def test_an_introduction_is_short() -> None:
    gate = Gate(Limits(introduction_bytes=2_000))
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"x": "y" * 2_000}}
    with pytest.raises(Refused, match="2,000 bytes"):
        await gate.read(json.dumps(hello).encode())


@pytest.mark.parametrize("wrong", ["\ud800 half", float("inf"), float("nan"), {"\ud800": 1}, ["\udfff"]])
def test_what_no_client_could_read_is_replaced(wrong: Any) -> None:
    fine = {"a": [1, "text", {"b": None, "ä": 0.5}]}
    assert sendable(fine) is fine
    mended = sendable({**fine, "wrong": wrong})
    assert mended["a"] == fine["a"]
    json.dumps(mended, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("levels", [190, 240, 5_000])
def test_what_is_nested_without_end_cannot_be_sent(levels: int) -> None:
    deep: Any = {}
    for _ in range(levels):
        deep = {"a": deep}
    with pytest.raises(TooDeep):
        sendable(deep)


def test_what_is_nested_as_deeply_as_clients_can_read_is_sent_however_wide_it_is() -> None:
    deep: Any = {}
    for _ in range(189):
        deep = {"a": deep}
    wide = {"rows": [{"text": "NaN and Infinity are words", "deep": [deep]} for _ in range(3)]}
    with pytest.raises(TooDeep):
        sendable(wide)
    assert sendable(deep) is deep
    shallow = {"rows": [{"text": "NaN and Infinity are words"} for _ in range(300)]}
    assert sendable(shallow) is shallow


class Reader:
    """A client that reads only when the test allows it."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.read: list[tuple[str, Mapping[str, Any] | None]] = []

    async def take(self, method: str, params: Mapping[str, Any] | None) -> None:
        await self.may_read.wait()
        self.read.append((method, params))


async def test_a_client_that_does_not_read_is_told_each_change_once_and_loses_the_oldest_of_the_rest() -> None:
    client = Reader()
    outbox = Outbox(client.take, 10)
    for number in range(1_000):
        outbox.put("notifications/tools/list_changed")
        outbox.put("notifications/resources/updated", {"uri": f"x://{number % 2}"})
        await asyncio.sleep(0)
    assert len(outbox) <= 4
    for number in range(1_000):
        outbox.put("notifications/message", {"data": number})
    assert len(outbox) == 10
    assert outbox.dropped > 900
    client.may_read.set()
    while len(outbox):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.read[-1] == ("notifications/message", {"data": 999})
    outbox.close()


async def test_a_client_that_is_gone_is_told_nothing() -> None:
    client = Reader()
    outbox = Outbox(client.take, 10)
    outbox.put("notifications/tools/list_changed")
    await asyncio.sleep(0)
    outbox.close()
    outbox.put("notifications/tools/list_changed")
    client.may_read.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.read == []
