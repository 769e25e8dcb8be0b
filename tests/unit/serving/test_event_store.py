"""Events sent on a stream can be requested again by the same client, for a limited time and up to a limit."""

from __future__ import annotations

import pytest
from mcp_types import ErrorData

from mcp_optimizer.largejson.raw import LargeText
from mcp_optimizer.serving.legacy_http import TOO_LARGE, KeptEvents, SessionEvents
from mcp_optimizer.serving.messages import Message, notice, response


def answer(text: str) -> Message:
    return response(1, {"text": text})


def replayed(store: SessionEvents, event_id: str) -> tuple[str | None, list[Message]]:
    found = store.after(event_id)
    return (found[0], [message for _, message in found[1]]) if found is not None else (None, [])


def test_a_client_gets_what_came_after_the_last_event_that_it_saw() -> None:
    store = KeptEvents().of_session()
    begun = store.open_stream("1")
    store.keep("2", answer("another call"))
    store.keep("1", answer("first"))
    assert replayed(store, begun) == ("1", [answer("first")])


def test_two_clients_with_the_same_request_ids_never_see_each_others_events() -> None:
    events = KeptEvents()
    mine, theirs = events.of_session(), events.of_session()
    begun = mine.open_stream("1")
    theirs.keep("1", answer("secret"))
    assert replayed(mine, begun) == ("1", [])
    assert replayed(theirs, begun) == (None, [])


def test_old_events_are_forgotten() -> None:
    now = 0.0
    store = KeptEvents(seconds=10, clock=lambda: now).of_session()
    begun = store.open_stream("1")
    now = 11.0
    store.keep("1", answer("late"))
    assert replayed(store, begun) == (None, [])


def test_large_results_push_out_the_oldest_and_never_grow_the_store() -> None:
    events = KeptEvents(size=10_000)
    store = events.of_session()
    first = store.keep("1", answer("x" * 4_000))
    for _ in range(10):
        last = store.keep("1", answer("x" * 4_000))
        assert events.size <= 10_000
    assert replayed(store, first) == (None, [])
    assert replayed(store, last) == ("1", [])
    huge = store.keep("1", answer("x" * 20_000))
    assert events.size <= 10_000
    assert replayed(store, huge) == (None, [])


BIG = "x" * 4_000
NESTED: list[object] = []
for _ in range(5_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "message",
    [
        notice("notifications/message", {"data": BIG}),
        notice("notifications/message", {BIG: 1}),
        {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": BIG}},
        response(1, ErrorData(code=1, message=BIG)),
        response(1, ErrorData(code=1, message="", data=[BIG])),
        response(1, {"a": [10**9_000] * 2}),
        response(1, {"a": {BIG: None}}),
    ],
    ids=lambda message: message.get("method", "response"),
)
def test_whatever_is_kept_counts_with_its_size(message: Message) -> None:
    events = KeptEvents(size=20_000)
    store = events.of_session()
    first = store.open_stream("1")
    for _ in range(10):
        store.keep("1", message)
    assert events.size <= 20_000
    assert replayed(store, first) == (None, [])


def test_a_result_that_is_nested_without_end_is_counted_too() -> None:
    events = KeptEvents(size=20_000)
    events.of_session().keep("1", response(1, {"a": NESTED}))
    assert events.size == 0


def test_an_event_id_of_any_length_is_answered_with_nothing() -> None:
    assert replayed(KeptEvents().of_session(), "9" * 5_000) == (None, [])


def test_an_event_id_that_was_never_given_is_answered_with_nothing() -> None:
    assert replayed(KeptEvents().of_session(), "no number") == (None, [])


def test_an_answer_that_is_written_in_pieces_is_said_to_be_lost_and_not_kept() -> None:
    store = KeptEvents().of_session()
    begun = store.open_stream("1")
    large = LargeText(memoryview(b'"' + b"x" * 100 + b'"'))
    store.keep("1", response(1, {"content": [{"type": "text", "text": large}]}))
    _, (sent,) = replayed(store, begun)
    assert sent["error"]["message"] == TOO_LARGE
