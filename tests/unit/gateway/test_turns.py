"""Searches take turns: a flood by one caller delays nobody else's search, and nobody's call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial

import pytest

from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.domain.caller import Caller, Principal
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.errors import InvalidRequest, TooManyCalls
from mcp_optimizer.gateway.caller_threads import CallerThreads
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.scripts.runner import ScriptRunner
from mcp_optimizer.serving.own_tools import OwnTools
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import gateway_over, mcp_tool, running
from tests.waiting import until

WAITING = 50


def caller(name: str, calls_per_minute: int | None = None) -> Caller:
    return Caller(name, name, principal=Principal(name, f"key:{name}", calls_per_minute=calls_per_minute))


class Held:
    """Searches that last until they are told to go on, and the order in which they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._go_on = threading.Semaphore(0)

    def of(self, name: str) -> Callable[[], str]:
        def search() -> str:
            self.began.append(name)
            assert self._go_on.acquire(timeout=30)
            return name

        return search

    def has_begun(self, number: int) -> bool:
        return len(self.began) >= number

    def let(self, number: int) -> None:
        self._go_on.release(number)


async def test_a_flood_by_one_caller_leaves_a_thread_for_another() -> None:
    turns, held = CallerThreads("searches", WAITING, 3), Held()
    flood = [asyncio.ensure_future(turns.run("loud", held.of("loud"))) for _ in range(40)]
    await until(lambda: len(held.began) == 2)
    quiet = asyncio.ensure_future(turns.run("quiet", held.of("quiet")))
    await until(lambda: "quiet" in held.began)
    assert held.began == ["loud", "loud", "quiet"]
    held.let(41)
    assert await quiet == "quiet"
    assert await asyncio.gather(*flood) == ["loud"] * 40


async def test_a_search_waits_for_a_few_of_each_other_caller_and_not_for_their_queues() -> None:
    turns, held = CallerThreads("searches", WAITING, 3), Held()
    names = ["a", "b", "c", "d"]
    flood = [asyncio.ensure_future(turns.run(name, held.of(name))) for name in names for _ in range(20)]
    await until(lambda: len(held.began) == 3)
    quiet = asyncio.ensure_future(turns.run("quiet", held.of("quiet")))
    for served in range(4, 2 * len(names) + 3):
        held.let(1)
        await until(partial(held.has_begun, served))
    assert "quiet" in held.began, "80 came before it"
    held.let(100)
    await asyncio.gather(quiet, *flood)


async def test_a_cancelled_search_leaves_the_queue() -> None:
    turns, held = CallerThreads("searches", WAITING, 3), Held()
    first = [asyncio.ensure_future(turns.run("one", held.of("first"))) for _ in range(2)]
    cancelled = [asyncio.ensure_future(turns.run("one", held.of("cancelled"))) for _ in range(20)]
    last = asyncio.ensure_future(turns.run("one", held.of("last")))
    await until(lambda: len(held.began) == 2)
    for task in cancelled:
        task.cancel()
    await asyncio.wait(cancelled, timeout=10)
    held.let(3)
    assert await last == "last"
    await asyncio.gather(*first)
    assert held.began == ["first", "first", "last"]


async def test_a_search_that_is_cancelled_while_it_runs_keeps_its_thread_until_it_is_done() -> None:
    turns, held = CallerThreads("searches", WAITING, 1), Held()
    running_one = asyncio.ensure_future(turns.run("one", held.of("running")))
    await until(lambda: held.began == ["running"])
    running_one.cancel()
    await asyncio.wait([running_one], timeout=10)
    assert running_one.cancelled()
    following = asyncio.ensure_future(turns.run("other", held.of("following")))
    assert not (await asyncio.wait([following], timeout=0.05))[0]
    assert held.began == ["running"]
    held.let(2)
    assert await following == "following"


async def test_more_searches_than_may_wait_are_told_to_wait_and_others_are_not() -> None:
    turns, held = CallerThreads("searches", 3, 3), Held()
    flood = [asyncio.ensure_future(turns.run("loud", held.of("loud"))) for _ in range(5)]
    await until(lambda: len(held.began) == 2)
    with pytest.raises(InvalidRequest, match=r"3 searches of this caller are waiting already. Wait for replies"):
        await turns.run("loud", held.of("loud"))
    quiet = asyncio.ensure_future(turns.run("quiet", held.of("quiet")))
    await until(lambda: "quiet" in held.began)
    held.let(6)
    await asyncio.gather(quiet, *flood)
    held.let(1)
    assert await turns.run("loud", held.of("again")) == "again"


async def test_the_error_of_a_search_reaches_whoever_asked_and_frees_its_place() -> None:
    turns = CallerThreads("searches", 1, 1)

    def fails() -> str:
        raise InvalidRequest("no")

    for _ in range(5):
        with pytest.raises(InvalidRequest, match="no"):
            await turns.run("one", fails)


@pytest.fixture
async def gateway() -> Gateway:
    tools = (mcp_tool("create_issue", "Create an issue"), mcp_tool("send_message", "Send a message"))
    return await gateway_over(running("work", *tools))


async def test_a_search_counts_as_a_call(gateway: Gateway) -> None:
    limited = caller("limited", 2)
    await gateway.search("create an issue", caller=limited)
    await gateway.call("create_issue", {}, caller=limited)
    with pytest.raises(TooManyCalls, match="2 a minute"):
        await gateway.search("create an issue", caller=limited)
    assert await gateway.search("create an issue", caller=caller("other", 2))


async def test_a_search_for_many_actions_counts_as_many_calls_at_any_rate(gateway: Gateway) -> None:
    limited = caller("limited", 5)
    found = await gateway.search(
        "create an issue; send a message; close it; list all; delete it; move it; copy it; read it", caller=limited
    )
    assert found.tools
    with pytest.raises(TooManyCalls) as refused:
        await gateway.search("create an issue", caller=limited)
    assert 36 < refused.value.retry_after <= 48, "8 of 5 were used, so 4 come back before the next"


async def test_a_search_that_cannot_be_made_costs_nothing(gateway: Gateway) -> None:
    limited = caller("limited", 1)
    for wrong in ({"limit": 0}, {"tool_keywords": "x" * 20_000}):
        with pytest.raises(InvalidRequest):
            await gateway.search("create an issue", caller=limited, **wrong)
    assert await gateway.search("create an issue", caller=limited)


@pytest.mark.slow
async def test_somebody_without_a_rate_searches_as_often_as_they_like(gateway: Gateway) -> None:
    for _ in range(50):
        await gateway.search("create an issue; send a message")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("find_tool", {"tool_description": "create an issue"}),
        ("list_tools", {}),
        ("read_result", {"result_id": "r1"}),
        ("run_script", {"script": "1"}),
        ("call_tool", {"tool_name": "create_issue"}),
    ],
)
async def test_each_of_our_own_tools_counts_as_a_call(gateway: Gateway, tool: str, arguments: dict[str, str]) -> None:
    scripts = ScriptRunner(gateway, ScriptMode.READ)
    own = OwnTools(gateway, gateway.limits, Detail.SIGNATURE, scripts).by_name(split_calls=False)
    limited = caller("limited", 1)
    with suppress(InvalidRequest):
        await own[tool](arguments, limited)
    with pytest.raises(TooManyCalls):
        await own[tool](arguments, limited)
    await scripts.close()


LOUD: ContextVar[bool] = ContextVar("loud", default=False)


class HeldCounter(TokenCounter):
    """Holds up the searches of one caller, wherever they run."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    def count_or_most(self, text: str) -> int:
        if LOUD.get():
            self.held.of("loud")()
        return super().count_or_most(text)


@pytest.mark.slow
async def test_a_flood_of_searches_holds_up_no_other_search_and_none_of_the_threads_of_calls() -> None:
    counter = HeldCounter()
    gateway = await gateway_over(running("work", mcp_tool("create_issue", "Create an issue")), counter=counter)

    async def loud() -> None:
        LOUD.set(True)
        await gateway.search("create an issue", detail=Detail.SIGNATURE, caller=caller("loud"))

    flood = [asyncio.ensure_future(loud()) for _ in range(100)]
    await until(lambda: len(counter.held.began) >= 2)
    quiet = asyncio.ensure_future(gateway.search("create an issue", caller=caller("quiet")))
    elsewhere = asyncio.ensure_future(asyncio.to_thread(str))
    done, _ = await asyncio.wait([quiet, elsewhere], timeout=10)
    counter.held.let(10_000)
    await asyncio.gather(quiet, elsewhere, *flood)
    assert done == {quiet, elsewhere}
