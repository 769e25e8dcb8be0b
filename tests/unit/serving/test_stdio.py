"""The one client on stdio: its requests are answered, cancelled and ended, in both eras."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp_types import JSONRPCResponse

from mcp_optimizer.serving.messages import encoded, response
from tests.e2e.raw_clients import ENVELOPE, HELLO, LEGACY, MODERN, message
from tests.unit.serving.pipe_client import PATIENCE, PipeUser, pipe_client
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("warm_start")]

ECHO = "test_simple_text"


@pytest.fixture(params=[LEGACY, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cancelled(number: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}


def text(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


async def begun(client: PipeUser, number: Any, name: str = "mine") -> None:
    """A call that does not end by itself, and whose server has said so."""
    client.send(client.call(number, "slow", {"name": name}, _meta={"progressToken": "t"}))
    await client.receive("notifications/progress")


async def ended_at_server(client: PipeUser, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while text(await client.ask(client.call("look", "was_cancelled"))) != json.dumps([name]):
            pass


@pytest.mark.parametrize("number", [7, "7", "a\u0001\u20ac", -(2**62), ""])
async def test_the_response_has_the_id_of_the_request_whatever_it_is(era: str, number: Any) -> None:
    async with pipe_client(era) as client:
        answer = await client.ask(client.call(number, ECHO))
        assert (answer["id"], type(answer["id"])) == (number, type(number))


HOSTILE: list[Any] = [
    {"name": "no such tool"},
    {"name": 7, "arguments": {}},
    {"arguments": {}},
    {},
    {"name": ECHO, "arguments": []},
    {"name": ECHO, "arguments": [1]},
    {"name": ECHO, "arguments": "text"},
    {"name": "x" * 100_000},
    {"name": ECHO, "_meta": []},
    {"name": ECHO, "_meta": {"progressToken": {}}},
    {"name": ECHO, "_meta": {types.PROTOCOL_VERSION_META_KEY: "2026-07-28"}},
    {"name": ECHO, "_meta": {types.PROTOCOL_VERSION_META_KEY: 7, types.CLIENT_CAPABILITIES_META_KEY: {}}},
    {"name": ECHO, "_meta": {types.CLIENT_CAPABILITIES_META_KEY: 5, types.PROTOCOL_VERSION_META_KEY: "2026-07-28"}},
    {"name": ECHO, "_meta": {types.CLIENT_INFO_META_KEY: "me"}},
    {"name": ECHO, "_meta": {"traceparent": 5}},
    {"name": ECHO, "requestState": "somebody else's", "inputResponses": {"q": {}}},
]


REFUSED_IN_BOTH = 12


async def test_hostile_calls_get_each_one_answer_and_cost_the_connection_nothing(era: str) -> None:
    async with pipe_client(era) as client:
        errors = 0
        for number, params in enumerate(HOSTILE):
            sent = dict(params)
            if era == MODERN and isinstance(meta := params.get("_meta", {}), dict):
                sent["_meta"] = {**ENVELOPE, **meta}
            answer = await client.ask({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": sent})
            assert ("result" in answer) is not ("error" in answer)
            errors += "error" in answer or answer["result"].get("isError", False)
        assert errors >= REFUSED_IN_BOTH
        assert text(await client.ask(client.call("after", ECHO)))
    assert not [one for one in client.rest if "id" in one]


async def test_a_client_keeps_the_era_that_its_first_request_decided(era: str) -> None:
    other = MODERN if era == LEGACY else LEGACY
    async with pipe_client(era) as client:
        method, params = ("initialize", HELLO) if other == LEGACY else ("tools/list", {})
        refused = await client.ask(message(method, params, 1, other))
        expected = types.UNSUPPORTED_PROTOCOL_VERSION if other == LEGACY else types.INVALID_REQUEST
        assert refused["error"]["code"] == expected
        assert text(await client.ask(client.call(2, ECHO)))


async def test_a_cancelled_call_ends_at_the_server_and_is_never_answered(era: str) -> None:
    async with pipe_client(era) as client:
        await begun(client, 5)
        client.send(cancelled("5"))
        await ended_at_server(client, "mine")
        answers = [await client.ask(client.call(number, ECHO)) for number in (5, 6)]
        assert [answer["id"] for answer in answers] == [5, 6]
    assert not [one for one in client.rest if "id" in one]


async def test_a_call_that_is_cancelled_in_the_same_piece_is_not_answered(era: str) -> None:
    async with pipe_client(era) as client:
        client.send(client.call(1, "slow", {"name": "early"}), cancelled(1), client.call(2, ECHO))
        assert (await client.receive())["id"] == 2


@pytest.mark.parametrize("number", [True, None, 1.5, {}, [], "another"])
async def test_a_cancellation_of_something_else_cancels_no_call(era: str, number: Any) -> None:
    async with pipe_client(era) as client:
        client.send(client.call("True", ECHO), cancelled(number))
        assert (await client.receive())["id"] == "True"


async def test_a_second_call_with_an_id_in_use_is_refused(era: str) -> None:
    async with pipe_client(era) as client:
        await begun(client, 9)
        client.send(client.call("9", ECHO))
        refused = await client.receive()
        assert (refused["id"], refused["error"]["code"]) == (None, types.INVALID_REQUEST)
        client.send(cancelled(9))
        await ended_at_server(client, "mine")


async def test_progress_comes_before_the_response(era: str) -> None:
    async with pipe_client(era) as client:
        client.send(client.call(1, "test_tool_with_progress", _meta={"progressToken": "mine"}))
        received = [await client.receive("notifications/progress") for _ in range(4)]
        assert [one["params"]["progress"] for one in received[:3]] == [0, 50, 100]
        assert {one["params"]["progressToken"] for one in received[:3]} == {"mine"}
        assert received[3]["id"] == 1


async def test_a_client_is_asked_in_the_middle_of_a_call() -> None:
    async with pipe_client(LEGACY, capabilities={"elicitation": {}}) as client:
        client.send(client.call(1, "test_elicitation", {"message": "Who?"}))
        question = await client.receive()
        assert question["method"] == "elicitation/create"
        # Meanwhile another call is answered.
        assert text(await client.ask(client.call(2, ECHO)))
        result = {"action": "accept", "content": {"username": "Ada", "email": "a@example.com"}}
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert "Ada" in text(await client.receive())


async def test_a_call_whose_question_is_open_can_be_cancelled() -> None:
    async with pipe_client(LEGACY, capabilities={"elicitation": {}}) as client:
        client.send(client.call(1, "test_elicitation", {"message": "Who?"}))
        question = await client.receive()
        client.send(cancelled(1))
        withdrawn = await client.receive("notifications/cancelled")
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        assert text(await client.ask(client.call(1, ECHO)))


async def test_the_result_of_a_modern_call_asks_its_client() -> None:
    able: dict[str, Any] = {types.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}}}
    async with pipe_client(MODERN) as client:
        name = "test_input_required_result_elicitation"
        asked = (await client.ask(client.call(1, name, _meta=able)))["result"]
        answer = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked["inputRequests"]}
        more = {"inputResponses": answer, **{key: asked[key] for key in ["requestState"] if key in asked}}
        assert text(await client.ask(client.call(2, name, _meta=able, **more))) == "Hello, Ada!"


async def test_the_end_of_stdin_ends_a_call_in_progress_with_an_error(era: str) -> None:
    async with pipe_client(era) as client:
        await begun(client, 3)
    [answer] = [one for one in client.rest if "id" in one]
    assert (answer["id"], answer["error"]["code"]) == (3, types.CONNECTION_CLOSED)


async def test_the_end_of_stdin_right_behind_a_call_ends_it_too(era: str) -> None:
    async with pipe_client(era) as client:
        client.send(client.call(3, "slow", {"name": "late"}))
    assert [one["id"] for one in client.rest if "id" in one] == [3]


async def test_calls_of_a_client_that_stops_reading_wait_and_are_all_answered_when_it_reads(era: str) -> None:
    wide = {"name": "x" * 900}
    async with pipe_client(era) as client:
        # More than the pipe and its buffer hold; the gateway reads on as long as its limit allows.
        sent = [client.call(number, ECHO, wide) for number in range(3_000)]
        client.send(*sent)
        everything = client.unsent
        await until(lambda: client.unsent < everything)
        answered = [(await client.receive())["id"] for _ in sent]
        assert sorted(answered) == list(range(3_000))


async def test_many_calls_at_once_get_each_its_own_response(era: str) -> None:
    async with pipe_client(era) as client:
        client.send(*(client.call(f"call {number}", ECHO) for number in range(100)))
        answered = {(await client.receive())["id"] for _ in range(100)}
        assert answered == {f"call {number}" for number in range(100)}


@pytest.mark.parametrize("result", [{}, {"content": [{"text": "\u20ac \x00 \U0001f600"}]}, {"a": [1.5, 1e300, None]}])
@pytest.mark.parametrize("number", [1, "1", "\u20ac"])
def test_a_response_is_written_as_its_message_would_be(number: Any, result: dict[str, Any]) -> None:
    whole = JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
    assert encoded(response(number, result)) == whole.model_dump_json(by_alias=True, exclude_unset=True).encode()
