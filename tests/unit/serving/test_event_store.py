"""Events sent on a stream can be requested again by the same client, for a limited time and up to a limit."""

from __future__ import annotations

import pytest
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_optimizer.serving.event_store import TOO_LARGE, KeptEvents


def answer(text: str) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text})


async def replayed(store: EventStore, event_id: str) -> tuple[str | None, list[JSONRPCMessage]]:
    sent: list[JSONRPCMessage] = []

    async def send(event: EventMessage) -> None:
        sent.append(event.message)

    return await store.replay_events_after(event_id, send), sent


async def test_a_client_gets_what_came_after_the_last_event_that_it_saw() -> None:
    store = KeptEvents().of_session()
    begun = await store.store_event("1", None)
    await store.store_event("2", answer("another call"))
    await store.store_event("1", answer("first"))
    assert await replayed(store, begun) == ("1", [answer("first")])


async def test_two_clients_with_the_same_request_ids_never_see_each_others_events() -> None:
    events = KeptEvents()
    mine, theirs = events.of_session(), events.of_session()
    begun = await mine.store_event("1", None)
    await theirs.store_event("1", answer("secret"))
    assert await replayed(mine, begun) == ("1", [])
    assert await replayed(theirs, begun) == (None, [])


async def test_old_events_are_forgotten() -> None:
    now = 0.0
    store = KeptEvents(seconds=10, clock=lambda: now).of_session()
    begun = await store.store_event("1", None)
    now = 11.0
    await store.store_event("1", answer("late"))
    assert await replayed(store, begun) == (None, [])


async def test_large_results_push_out_the_oldest_and_never_grow_the_store() -> None:
    events = KeptEvents(size=10_000)
    store = events.of_session()
    first = await store.store_event("1", answer("x" * 4_000))
    for _ in range(10):
        last = await store.store_event("1", answer("x" * 4_000))
        assert events.size <= 10_000
    assert await replayed(store, first) == (None, [])
    assert await replayed(store, last) == ("1", [])
    huge = await store.store_event("1", answer("x" * 20_000))
    assert events.size <= 10_000
    assert await replayed(store, huge) == (None, [])


BIG = "x" * 4_000
NESTED: list[object] = []
for _ in range(5_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "message",
    [
        JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": BIG}),
        JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={BIG: 1}),
        JSONRPCRequest(jsonrpc="2.0", id=1, method="elicitation/create", params={"message": BIG}),
        JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=1, message=BIG)),
        JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=1, message="", data=[BIG])),
        JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": [10**9_000] * 2}),
        JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": {BIG: None}}),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_whatever_is_kept_counts_with_its_size(message: JSONRPCMessage) -> None:
    events = KeptEvents(size=20_000)
    store = events.of_session()
    first = await store.store_event("1", None)
    for _ in range(10):
        await store.store_event("1", message)
    assert events.size <= 20_000
    assert await replayed(store, first) == (None, [])


async def test_a_result_that_is_nested_without_end_is_counted_too() -> None:
    events = KeptEvents(size=20_000)
    await events.of_session().store_event("1", JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": NESTED}))
    assert events.size == 0


async def test_an_event_id_of_any_length_is_answered_with_nothing() -> None:
    assert await replayed(KeptEvents().of_session(), "9" * 5_000) == (None, [])


async def test_an_event_id_that_was_never_given_is_answered_with_nothing() -> None:
    assert await replayed(KeptEvents().of_session(), "no number") == (None, [])


async def test_an_answer_that_went_out_beside_the_sdk_is_said_to_be_lost_and_not_sent_in_part() -> None:
    store = KeptEvents().of_session()
    begun = await store.store_event("1", None)
    store.leave_out("1")
    await store.store_event("1", answer("placeholder"))
    _, (sent,) = await replayed(store, begun)
    assert isinstance(sent, JSONRPCError)
    assert sent.error.message == TOO_LARGE
