"""Calls that wait for their client's answers: whose they are, how long they wait, how many may, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import pytest

from mcp_optimizer.domain.caller import Caller, ClientLink
from mcp_optimizer.errors import CallNotWaiting
from mcp_optimizer.upstream.peer import Message, Peer
from mcp_optimizer.upstream.questions import ParkedCalls, ParkingLimits, Request, refusal
from mcp_optimizer.upstream.request_errors import ServerGone
from tests.waiting import until

REQUEST = Request("files", "tools/call", {"name": "ask"})
ELICITATION, ACCEPTED = {"message": "Who?", "requestedSchema": {}}, {"action": "accept", "content": {}}


class Modern:
    """A modern client, by one of its requests."""

    is_modern = True
    log_level: str | None = None

    def __init__(self, key: str = "http:ada", **capabilities: Any) -> None:
        self.key = key
        self.capabilities: Mapping[str, Any] = capabilities or {"elicitation": {}, "sampling": {}}
        self.told: list[Mapping[str, Any]] = []

    @property
    def lasting(self) -> ClientLink:
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("such a client is never asked")

    async def release_streams(self) -> None:
        """There is no stream to let go of."""

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append(params)


class Conversation:
    """A server at the other end of a real peer, and the calls that clients make of it."""

    def __init__(self, limits: ParkingLimits | None = None, *, are_known: bool = False) -> None:
        self.calls = ParkedCalls(limits, are_known=are_known)
        self.sent: list[Message] = []
        self.peer = Peer(lambda _method, _params: None)
        self.peer.bind(self)

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        self.sent.append(message)

    def begin(self, caller: Caller) -> asyncio.Task[dict[str, Any]]:
        token = (caller.passed_on.get("_meta") or {}).get("progressToken")

        async def make(client: Caller) -> dict[str, Any]:
            return await self.peer.request("tools/call", {"name": "ask"}, 60, link=client.link, progress_token=token)

        return asyncio.create_task(self.calls.begin(REQUEST, caller, make))

    def go_on(self, state: str, answers: Any, link: Modern | None = None, token: Any = None) -> asyncio.Task[Any]:
        return asyncio.create_task(self.calls.go_on(REQUEST, answering(state, answers, link, token)))

    def asks(self, number: Any, method: str = "elicitation/create", params: Any = None, about: int = 1) -> None:
        params = ELICITATION if params is None else params
        self.peer.receive({"id": number, "method": method, "params": params}, about)

    def answers(self, result: dict[str, Any], to: int = 1) -> None:
        self.peer.receive({"id": to, "result": result})

    async def heard(self, count: int) -> Message:
        """What the server is sent, from its first message on; the last of so many."""
        await until(lambda: len(self.sent) >= count, f"{count} messages to the server")
        assert len(self.sent) == count
        return self.sent[-1]


def calling(link: Modern | None = None, **passing: Any) -> Caller:
    link = link or Modern()
    return Caller("test", link.key, link, passing)


def answering(state: str, answers: Any, link: Modern | None = None, token: Any = None) -> Caller:
    meta = {"_meta": {"progressToken": token}} if token is not None else {}
    return calling(link, inputResponses=answers, requestState=state, **meta)


async def parked(conversation: Conversation, question: Any = "a", link: Modern | None = None) -> str:
    """A call whose server asked; its state."""
    before = len(conversation.sent)
    call = conversation.begin(calling(link))
    number = (await conversation.heard(before + 1))["id"]
    conversation.asks(question, about=number)
    result = await call
    assert result["resultType"] == "input_required"
    return str(result["requestState"])


async def test_a_question_becomes_the_answer_and_the_answer_goes_to_the_server() -> None:
    conversation = Conversation()
    call = conversation.begin(calling())
    await conversation.heard(1)
    url = {"mode": "form", "message": "Who?", "elicitationId": "e", "task": {}, "_meta": {"progressToken": 1, "x": 2}}
    conversation.asks("a", params=url)
    asked = await call
    meta = {"x": 2, "mcp-optimizer/server": "files"}
    params = {"mode": "form", "message": 'The server "files" asks: Who?', "_meta": meta}
    assert asked["inputRequests"] == {"q1": {"method": "elicitation/create", "params": params}}
    assert len(asked["requestState"]) > 30
    call = conversation.go_on(asked["requestState"], {"q1": ACCEPTED})
    assert await conversation.heard(2) == {"jsonrpc": "2.0", "id": "a", "result": ACCEPTED}
    conversation.answers({"content": []})
    assert await call == {"content": []}
    assert conversation.peer.is_idle
    assert len(conversation.calls) == 0


async def test_questions_that_come_together_are_asked_together_and_what_is_left_open_is_asked_again() -> None:
    conversation = Conversation()
    call = conversation.begin(calling())
    await conversation.heard(1)
    conversation.asks("a")
    conversation.asks("b", "sampling/createMessage", {})
    asked = await call
    assert list(asked["inputRequests"]) == ["q1", "q2"]
    again = await conversation.go_on(asked["requestState"], {"q2": {"role": "assistant"}, "q9": {}, "q1": "no answer"})
    assert list(again["inputRequests"]) == ["q1"]
    assert again["requestState"] != asked["requestState"]
    assert (await conversation.heard(2))["id"] == "b"
    await conversation.calls.close()


async def test_a_state_is_good_for_one_answer_of_one_client_to_one_call() -> None:
    conversation = Conversation()
    state = await parked(conversation)
    other = Request("files", "tools/call", {"name": "other"})
    for request, caller in (
        (REQUEST, answering("unknown", {})),
        (REQUEST, answering(state, {}, Modern("http:bob"))),
        (other, answering(state, {})),
        (REQUEST, calling(requestState=7)),
        (REQUEST, calling()),
    ):
        with pytest.raises(CallNotWaiting, match="Call again without inputResponses"):
            await conversation.calls.go_on(request, caller)
    call = conversation.go_on(state, {"q1": ACCEPTED})
    await conversation.heard(2)
    with pytest.raises(CallNotWaiting):
        await conversation.go_on(state, {"q1": ACCEPTED})
    conversation.answers({})
    assert await call == {}


async def test_what_is_not_answered_in_time_is_cancelled() -> None:
    conversation = Conversation(ParkingLimits(seconds=0.05))
    call = conversation.begin(calling())
    await conversation.heard(1)
    conversation.asks("a")
    conversation.asks("b", "sampling/createMessage", {})
    state = (await call)["requestState"]
    await conversation.heard(4)
    elicited, sampled, cancelled = conversation.sent[1:]
    assert elicited["result"] == {"action": "cancel"}
    assert sampled["error"]["code"] == types.REQUEST_TIMEOUT
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", 1)
    assert conversation.peer.is_idle
    with pytest.raises(CallNotWaiting):
        await conversation.go_on(state, {"q1": ACCEPTED})


async def test_calling_again_without_an_answer_does_not_buy_time() -> None:
    conversation = Conversation(ParkingLimits(seconds=0.2))
    state = await parked(conversation)

    async def call_again(state: str) -> None:
        while True:
            state = (await conversation.go_on(state, {}))["requestState"]
            await asyncio.sleep(0.02)

    with pytest.raises(CallNotWaiting):
        await asyncio.wait_for(call_again(state), 5)
    assert conversation.peer.is_idle


@pytest.mark.parametrize("limits", [ParkingLimits(most=2), ParkingLimits(most_of_one=2)])
async def test_only_so_many_calls_wait(limits: ParkingLimits) -> None:
    conversation = Conversation(limits)
    first, _ = [await parked(conversation, number) for number in ("a", "b")]
    third = conversation.begin(calling())
    await conversation.heard(3)
    conversation.asks("c", about=3)
    refused = await conversation.heard(4)
    assert "too many questions" in refused["error"]["message"]
    conversation.answers({"without": "an answer"}, to=3)
    assert await third == {"without": "an answer"}
    # An answered call makes room, and another client has its own limit.
    call = conversation.go_on(first, {"q1": ACCEPTED})
    await conversation.heard(5)
    await parked(conversation, "d")
    if limits.most_of_one == 2:
        await parked(conversation, "e", Modern("http:bob"))
    conversation.answers({}, to=1)
    await call
    await conversation.calls.close()
    assert conversation.peer.is_idle


async def test_a_server_may_ask_only_so_much_at_once() -> None:
    conversation = Conversation()
    await parked(conversation)
    for number in range(20):
        conversation.asks(number)
    await conversation.heard(6)
    assert all("too many questions" in message["error"]["message"] for message in conversation.sent[1:])
    await conversation.calls.close()


async def test_a_server_that_takes_its_question_back_may_answer_and_the_client_gets_it_when_it_comes() -> None:
    conversation = Conversation()
    state = await parked(conversation)
    conversation.peer.receive({"method": "notifications/cancelled", "params": {"requestId": "a"}})
    conversation.answers({"late": False})
    await until(lambda: conversation.peer.is_idle)
    assert await conversation.go_on(state, {"q1": ACCEPTED}) == {"late": False}
    assert len(conversation.sent) == 1


@pytest.mark.parametrize("is_closing", [True, False], ids=["the gateway stops", "the client answers"])
async def test_a_question_that_was_taken_back_a_moment_ago_is_not_answered(is_closing: bool) -> None:
    conversation = Conversation()
    state = await parked(conversation)
    conversation.peer.receive({"method": "notifications/cancelled", "params": {"requestId": "a"}})
    # At once, before the caller has noticed.
    if is_closing:
        await conversation.calls.close()
    else:
        conversation.answers({"late": False})
        assert await conversation.calls.go_on(REQUEST, answering(state, {"q1": ACCEPTED})) == {"late": False}
    assert not any("result" in message for message in conversation.sent)


async def test_a_server_that_dies_is_told_of_to_whoever_comes_back() -> None:
    conversation = Conversation()
    state = await parked(conversation)
    conversation.peer.close()
    await until(lambda: conversation.peer.is_idle)
    assert conversation.calls.find(answering(state, {}, Modern("http:bob"))) is None
    with pytest.raises(ServerGone):
        conversation.calls.find(answering(state, {}))
    assert conversation.calls.find(answering(state, {})) is None


async def test_a_client_that_cancels_its_request_ends_the_call() -> None:
    conversation = Conversation()
    state = await parked(conversation)
    call = conversation.go_on(state, {"q1": ACCEPTED})
    await conversation.heard(2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await conversation.heard(3))["method"] == "notifications/cancelled"


async def test_a_gateway_that_stops_leaves_no_call_behind() -> None:
    conversation = Conversation()
    state = await parked(conversation)
    await conversation.calls.close()
    assert conversation.peer.is_idle
    assert [message.get("result") for message in conversation.sent[1:2]] == [{"action": "cancel"}]
    assert conversation.calls.find(answering(state, {})) is None


async def test_what_is_said_while_nobody_listens_is_kept_for_the_next_request_under_its_token() -> None:
    conversation, first, second = Conversation(), Modern(), Modern()
    call = conversation.begin(calling(first, _meta={"progressToken": "one"}))
    await conversation.heard(1)

    def progress(done: int) -> None:
        params = {"progressToken": 1, "progress": done}
        conversation.peer.receive({"method": "notifications/progress", "params": params})

    progress(0)
    conversation.asks("a")
    state = (await call)["requestState"]
    assert first.told == [{"progressToken": "one", "progress": 0}]
    for done in range(1, 151):
        progress(done)
    # Waits until everything said so far is passed on.
    await conversation.peer.release_streams(1)
    call = conversation.go_on(state, {"q1": ACCEPTED}, second, "two")
    await conversation.heard(2)
    progress(151)
    conversation.answers({})
    await call
    # The last hundred of many.
    assert second.told == [{"progressToken": "two", "progress": done} for done in range(51, 152)]
    assert len(first.told) == 1


async def test_a_question_that_may_belong_to_either_of_two_calls_reaches_neither() -> None:
    conversation = Conversation()
    calls = [conversation.begin(calling()) for _ in range(2)]
    await conversation.heard(2)
    # As on stdio, where nothing says which call a question is about.
    conversation.asks("a", about=99)
    assert "error" in await conversation.heard(3)
    for number, call in enumerate(calls, 1):
        conversation.answers({}, to=number)
        await call


async def test_where_there_is_only_one_client_every_question_is_for_it() -> None:
    conversation = Conversation(are_known=True)
    calls = [conversation.begin(calling()) for _ in range(2)]
    await conversation.heard(2)
    conversation.asks("a", about=99)
    assert (await calls[1])["resultType"] == "input_required"
    conversation.answers({})
    await calls[0]
    await conversation.calls.close()


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "code"),
    [
        ({"elicitation": {}}, "elicitation/create", {}, None),
        ({"elicitation": {}}, "elicitation/create", {"mode": "form"}, None),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url"}, types.INVALID_PARAMS),
        ({"elicitation": {"url": {}}}, "elicitation/create", {"mode": "url"}, None),
        ({"elicitation": {"url": {}}}, "elicitation/create", {}, types.INVALID_PARAMS),
        ({"elicitation": {}}, "sampling/createMessage", {}, types.METHOD_NOT_FOUND),
        ({"elicitation": None}, "elicitation/create", {}, types.METHOD_NOT_FOUND),
        ({"roots": {"listChanged": True}}, "roots/list", {}, None),
        ({"roots": {}}, "roots/forget", {}, types.METHOD_NOT_FOUND),
    ],
)
def test_a_server_may_ask_for_what_its_client_declared(
    capabilities: dict[str, Any], method: str, params: dict[str, Any], code: int | None
) -> None:
    refused = refusal(capabilities, method, params)
    assert (refused.code if refused is not None else None) == code
