"""Requests of one connection: answered once, cancelled, and ended with it, whatever carries them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from mcp_optimizer.serving.dispatcher import CLOSED, ClientDispatcher, RequestContext
from mcp_optimizer.serving.messages import Message, Outcome


class Wire:
    """A client, to whom everything that is sent stays."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answers: list[Outcome | None] = []
        self.dispatcher = ClientDispatcher(self)
        self.go_on = asyncio.Event()
        self.began = asyncio.Event()

    def tell(self, message: Message) -> None:
        self.sent.append(message)

    async def drained(self) -> None:
        """There is always room."""

    async def handle(self, context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self.began.set()
        if method == "ask":
            return dict(await context.send_raw_request("roots/list", params))
        if method == "fail":
            raise RuntimeError("the password is 7")
        await self.go_on.wait()
        return {"method": method}

    def begin(self, method: str = "wait", number: Any = 1) -> RequestContext:
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method)
        context = RequestContext(number, None, self, self.dispatcher)
        self.dispatcher.begin(request, context, self.handle, self.answers.append)
        return context

    def hear(self, message: JSONRPCMessage) -> None:
        self.dispatcher.take(message, self.unheard)

    async def unheard(self, _context: Any, _method: str, _params: Mapping[str, Any] | None) -> None:
        """Notifications have no effect of their own."""

    def cancel(self, number: Any) -> None:
        method, params = "notifications/cancelled", {"requestId": number}
        self.hear(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))

    async def answered(self) -> Outcome | None:
        async with asyncio.timeout(10):
            while not self.answers:
                await asyncio.sleep(0)
        return self.answers.pop(0)


async def test_a_request_is_answered_once_and_its_id_can_be_used_again() -> None:
    wire = Wire()
    for number in (1, "1"):
        wire.begin(number=number)
        assert wire.dispatcher.has(1)
        wire.go_on.set()
        assert await wire.answered() == {"method": "wait"}
        assert not wire.dispatcher.has("1")


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_cancelled_request_has_no_outcome_whether_or_not_it_had_begun(has_begun: bool) -> None:
    wire = Wire()
    context = wire.begin(number=7)
    if has_begun:
        await wire.began.wait()
    wire.cancel("7")
    assert not wire.dispatcher.has(7)
    assert await wire.answered() is None
    assert context.cancel_requested.is_set()
    assert wire.began.is_set() is has_begun


@pytest.mark.parametrize("number", [True, None, 1.5, {}, [], "01"])
async def test_a_cancellation_of_something_else_cancels_nothing(number: Any) -> None:
    wire = Wire()
    wire.begin(number=1)
    wire.cancel(number)
    wire.go_on.set()
    assert await wire.answered() == {"method": "wait"}


async def test_a_question_gets_its_answer_under_its_own_id_and_no_other() -> None:
    wire = Wire()
    wire.begin("ask")
    await wire.began.wait()
    [question] = wire.sent
    for number in (99, question["id"], question["id"]):
        wire.hear(JSONRPCResponse(jsonrpc="2.0", id=number, result={"roots": [number]}))
    assert await wire.answered() == {"roots": [question["id"]]}


async def test_a_client_that_refuses_a_question_refuses_the_request() -> None:
    wire = Wire()
    wire.begin("ask")
    await wire.began.wait()
    error = ErrorData(code=-1, message="no")
    wire.hear(JSONRPCError(jsonrpc="2.0", id=wire.sent[0]["id"], error=error))
    assert await wire.answered() == error


async def test_the_question_of_a_cancelled_request_is_withdrawn() -> None:
    wire = Wire()
    wire.begin("ask", 5)
    await wire.began.wait()
    wire.cancel(5)
    assert await wire.answered() is None
    question, withdrawn = wire.sent
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])


@pytest.mark.parametrize("has_begun", [False, True])
async def test_the_end_of_a_connection_ends_requests_and_questions_with_an_error(has_begun: bool) -> None:
    wire = Wire()
    wire.begin(number=1)
    wire.begin("ask", 2)
    outside = asyncio.ensure_future(wire.dispatcher.send_raw_request("ping", None))
    if has_begun:
        await wire.began.wait()
    await asyncio.sleep(0)
    await wire.dispatcher.close()
    assert wire.answers == [CLOSED, CLOSED]
    for asking in (outside, wire.dispatcher.send_raw_request("ping", None)):
        with pytest.raises(MCPError, match="Connection closed"):
            await asking
    assert len(wire.dispatcher) == 0


async def test_a_request_that_is_answered_can_neither_tell_nor_ask_anything() -> None:
    wire = Wire()
    context = wire.begin()
    wire.go_on.set()
    await wire.answered()
    await context.notify("notifications/message", {})
    with pytest.raises(NoBackChannelError):
        await context.send_raw_request("roots/list", None)
    assert wire.sent == []


async def test_the_text_of_a_bug_is_for_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    with caplog.at_level(logging.ERROR):
        wire.begin("fail")
        assert await wire.answered() == ErrorData(code=INTERNAL_ERROR, message="Internal server error")
    assert "the password is 7" in caplog.text


async def test_an_id_of_a_question_is_never_that_of_an_open_one() -> None:
    wire = Wire()
    first = asyncio.ensure_future(wire.dispatcher.send_raw_request("ping", None, {"request_id": "1"}))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="open already"):
        await wire.dispatcher.send_raw_request("ping", None, {"request_id": 1})
    second = asyncio.ensure_future(wire.dispatcher.send_raw_request("ping", None))
    await asyncio.sleep(0)
    assert [question["id"] for question in wire.sent] == ["1", 2]
    for number, asking in ((1, first), (2, second)):
        wire.hear(JSONRPCResponse(jsonrpc="2.0", id=number, result={}))
        assert await asking == {}
