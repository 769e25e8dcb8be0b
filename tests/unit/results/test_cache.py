"""Results of read-only tools are cached only while they are valid: for the same caller, until something writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_optimizer.domain.caller import LOCAL, Caller
from mcp_optimizer.results.cache import CacheKey, ResultCache
from mcp_optimizer.results.calls import Call, ResultOptions, Treatment
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.token_counter import TokenCounter

READS = {"readOnlyHint": True, "openWorldHint": False}
COUNTER = TokenCounter()


class Server:
    """A server that counts its calls, and can be made to wait or fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.fails = False

    async def ask(self) -> dict[str, Any]:
        self.asked += 1
        self.is_asked.set()
        number = self.asked
        await self.is_free.wait()
        return {"content": [{"type": "text", "text": f"answer {number}"}], "isError": self.fails}


def results(cache: ResultCache | None = None, **options: Any) -> Results:
    chosen = ResultOptions(**{"everywhere": Treatment(cache_seconds=60), **options})
    return Results(Estimator("auto", COUNTER), None, chosen, cache)


def call(**more: Any) -> Call:
    return Call(**{"server": "files", "tool": "read", "annotations": READS, **more})


def said(result: dict[str, Any]) -> tuple[str, bool]:
    return result["content"][0]["text"], result["_meta"]["performance"]["cachedResult"]


@pytest.mark.requirement("C6", "RM-5")
async def test_the_same_call_is_served_again_and_says_so() -> None:
    pipeline, server = results(), Server()
    first = await pipeline.answer(call(arguments={"a": 1, "b": 2}), server.ask)
    again = await pipeline.answer(call(arguments={"b": 2, "a": 1}), server.ask)
    assert (said(first), said(again)) == (("answer 1", False), ("answer 1", True))
    assert again["_meta"]["tokens"] == first["_meta"]["tokens"]


@pytest.mark.parametrize(
    "other",
    [
        {"caller": Caller("x", "http:2")},
        {"arguments": {"a": 2}},
        {"definition_hash": "changed"},
        {"tool": "list"},
        {"server": "others"},
    ],
)
async def test_whatever_else_differs_it_is_another_call(other: dict[str, Any]) -> None:
    pipeline, server = results(), Server()
    await pipeline.answer(call(), server.ask)
    assert said(await pipeline.answer(call(**other), server.ask)) == ("answer 2", False)


@pytest.mark.requirement("C6")
@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"readOnlyHint": True},
        {"readOnlyHint": True, "openWorldHint": True},
        {"readOnlyHint": False, "openWorldHint": False},
    ],
)
async def test_a_tool_that_does_not_declare_it_is_always_asked(annotations: dict[str, Any]) -> None:
    pipeline, server = results(), Server()
    for number in (1, 2):
        result = await pipeline.answer(call(annotations=annotations), server.ask)
        assert said(result) == (f"answer {number}", False)


async def test_nothing_is_served_again_unless_that_was_asked_for() -> None:
    pipeline, server = results(everywhere=Treatment()), Server()
    await pipeline.answer(call(), server.ask)
    assert said(await pipeline.answer(call(), server.ask)) == ("answer 2", False)


async def test_a_tool_can_be_named_that_declares_nothing() -> None:
    pipeline = results(tools={"files__read": {"cache_seconds": 5}}, everywhere=Treatment())
    server = Server()
    await pipeline.answer(call(annotations={}), server.ask)
    assert said(await pipeline.answer(call(annotations={}), server.ask)) == ("answer 1", True)


async def test_errors_are_not_kept() -> None:
    pipeline, server = results(), Server()
    server.fails = True
    await pipeline.answer(call(), server.ask)
    assert said(await pipeline.answer(call(), server.ask)) == ("answer 2", False)


async def test_a_write_to_the_same_server_clears_what_was_read_from_it() -> None:
    pipeline, server = results(), Server()
    await pipeline.answer(call(), server.ask)
    await pipeline.answer(call(server="others"), server.ask)
    await pipeline.answer(call(tool="write", annotations={}), server.ask)
    assert said(await pipeline.answer(call(), server.ask)) == ("answer 4", False)
    assert said(await pipeline.answer(call(server="others"), server.ask)) == ("answer 2", True)


async def test_what_was_being_read_while_something_was_written_is_not_kept() -> None:
    pipeline, server = results(), Server()
    server.is_free.clear()
    reading = asyncio.create_task(pipeline.answer(call(), server.ask))
    await asyncio.sleep(0)
    await pipeline.answer(call(tool="write", annotations={}), Server().ask)
    server.is_free.set()
    assert said(await reading) == ("answer 1", False)
    assert said(await pipeline.answer(call(), server.ask)) == ("answer 2", False)


async def test_simultaneous_identical_calls_are_one() -> None:
    pipeline, server = results(), Server()
    server.is_free.clear()
    calls = [asyncio.create_task(pipeline.answer(call(), server.ask)) for _ in range(5)]
    await server.is_asked.wait()
    server.is_free.set()
    assert sorted(said(result) for result in await asyncio.gather(*calls)) == [
        ("answer 1", False),
        *[("answer 1", True)] * 4,
    ]


async def test_a_caller_that_gives_up_does_not_end_the_call_for_others() -> None:
    pipeline, server = results(), Server()
    server.is_free.clear()
    first, second = (asyncio.create_task(pipeline.answer(call(), server.ask)) for _ in range(2))
    await server.is_asked.wait()
    first.cancel()
    await asyncio.wait({first})
    server.is_free.set()
    assert said(await second) == ("answer 1", True)
    assert first.cancelled()


async def test_a_call_that_nobody_waits_for_any_more_is_given_up() -> None:
    cache, begun, ended = ResultCache(), asyncio.Event(), asyncio.Event()

    async def ask() -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    waiting = asyncio.create_task(cache.once(CacheKey("s", b"k"), ask))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait_for(ended.wait(), 5)


async def test_a_failure_reaches_everybody_and_is_not_kept() -> None:
    cache, asked = ResultCache(), 0

    async def ask() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise ValueError("gone")

    key = CacheKey("s", b"k")
    outcomes = await asyncio.gather(cache.once(key, ask), cache.once(key, ask), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, ValueError]
    assert asked == 1
    with pytest.raises(ValueError, match="gone"):
        await cache.once(key, ask)


def test_results_leave_when_their_time_is_up_and_the_least_used_first_when_there_is_no_room() -> None:
    now = 0.0
    cache = ResultCache(megabytes=0.0001, clock=lambda: now)
    keys = [CacheKey("s", bytes([number])) for number in range(4)]
    cache.put(keys[0], {"a": 0}, 40, 10)
    cache.put(keys[1], {"a": 1}, 40, 20)
    assert cache.get(keys[0]) is not None
    cache.put(keys[2], {"a": 2}, 40, 20)
    assert cache.get(keys[1]) is None
    now = 10.0
    assert cache.get(keys[0]) is None
    assert cache.get(keys[2]) == {"a": 2}
    cache.put(keys[3], {"a": 3}, 101, 20)
    assert cache.get(keys[3]) is None


def test_the_local_caller_is_a_caller_like_any_other() -> None:
    keys = {CacheKey.of(key, "s", "t", "h", {}) for key in (LOCAL.key, "http:1", "http:2")}
    assert len(keys) == 3


async def test_a_question_is_nobody_elses_and_what_came_of_an_answer_is_not_served_again() -> None:
    pipeline, asked = results(), 0
    free = asyncio.Event()

    async def ask() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        number = asked
        await free.wait()
        return {"resultType": "input_required", "inputRequests": {}, "requestState": f"s{number}"}

    both = [asyncio.create_task(pipeline.answer(call(), ask)) for _ in range(2)]
    await asyncio.sleep(0)
    free.set()
    assert sorted(result["requestState"] for result in await asyncio.gather(*both)) == ["s1", "s2"]
    server = Server()
    answering = call(caller=Caller(passed_on={"requestState": "s1", "inputResponses": {}}), seconds_before=30.0)
    result = await pipeline.answer(answering, server.ask)
    assert said(result) == ("answer 1", False)
    assert 30_000 <= result["_meta"]["performance"]["executionTimeMs"] < 40_000
    assert said(await pipeline.answer(call(), server.ask)) == ("answer 2", False)
    assert said(await pipeline.answer(answering, server.ask)) == ("answer 3", False)
