"""The empty event that opens a stream is sent only where a client may need it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send

from mcp_optimizer.serving.first_events import HeldFirstEvents

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
FIRST = b"id: 1\r\ndata: \r\nretry: 1000\r\n\r\n"
ANSWER = b'id: 2\r\nevent: message\r\ndata: {"jsonrpc":"2.0"}\r\n\r\n'


def body(event: bytes) -> Message:
    return {"type": "http.response.body", "body": event, "more_body": True}


async def sent(
    stream: Callable[[Send], Awaitable[None]],
    seconds: float = 10.0,
    method: str = "POST",
    on_body: Callable[[], None] = lambda: None,
) -> list[bytes]:
    """The bodies that reach the client."""
    messages: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await stream(send)

    async def send(message: Message) -> None:
        messages.append(message)
        if message is not START:
            on_body()

    async def receive() -> Message:
        raise AssertionError

    await HeldFirstEvents(app, seconds)({"type": "http", "method": method}, receive, send)
    assert messages[0] == START
    return [message["body"] for message in messages[1:]]


async def test_an_answer_that_comes_at_once_needs_no_empty_event_before_it() -> None:
    async def stream(send: Send) -> None:
        for message in (body(FIRST), body(ANSWER), END):
            await send(message)

    assert await sent(stream) == [ANSWER, b""]


async def test_a_client_that_waits_for_long_is_told_from_where_to_ask_again() -> None:
    told = asyncio.Event()

    async def stream(send: Send) -> None:
        await send(body(FIRST))
        await asyncio.wait_for(told.wait(), 5)
        for message in (body(ANSWER), END):
            await send(message)

    assert await sent(stream, seconds=0.01, on_body=told.set) == [FIRST, ANSWER, b""]


async def test_a_stream_that_ends_without_an_answer_says_from_where_to_ask_again() -> None:
    async def stream(send: Send) -> None:
        await send(body(FIRST))
        await send(END)

    assert await sent(stream) == [FIRST, b""]


async def test_an_empty_event_later_on_and_streams_that_are_read_again_pass_as_they_are() -> None:
    async def stream(send: Send) -> None:
        for message in (body(ANSWER), END):
            await send(message)

    async def resumed(send: Send) -> None:
        for message in (body(FIRST), body(ANSWER), END):
            await send(message)

    assert await sent(stream) == [ANSWER, b""]
    assert await sent(resumed, method="GET") == [FIRST, ANSWER, b""]
