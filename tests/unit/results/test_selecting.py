"""Selecting from a result of any size blocks nothing else and loses nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.projection import Projection
from mcp_optimizer.results.selecting import AT_ONCE
from tests.unit.results.test_limits import gate, id_of, text_result, texts, whole
from tests.unit.results.test_projection import doubled

ROWS = [{"id": number, "name": f"Person {number}"} for number in range(2_000)]
SENT = json.dumps({"items": ROWS})


async def longest_stop(work: Awaitable[Any]) -> float:
    """The longest time, in seconds, for which this work kept the event loop from running anything else.

    In computing time, because the machine itself may pause.
    """
    task = asyncio.ensure_future(work)
    longest, last = 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0.005)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    task.exception()
    return longest


@pytest.mark.process
async def test_a_select_that_makes_too_much_costs_a_call_its_selection_and_nothing_else() -> None:
    async with gate(max_tokens=1_000) as opened:
        result = await opened.pass_through(text_result(SENT), select=Projection(doubled(28)))
        *_, notice = texts(result)
        assert notice == "[Not selected: select produces more than 10,000,000 characters. Select less.]"
        assert whole(await opened.all_pages(id_of(result))) == SENT


@pytest.mark.process
async def test_a_select_that_makes_too_much_is_refused_when_a_result_is_read() -> None:
    async with gate(max_tokens=1_000) as opened:
        cut = await opened.pass_through(text_result(SENT))
        with pytest.raises(InvalidRequest, match="produces more than 10,000,000 characters"):
            await opened.results.read(id_of(cut), select=doubled(28))


async def test_others_go_on_while_a_costly_expression_is_applied() -> None:
    async with gate(max_tokens=1_000) as opened:
        cut = await opened.pass_through(text_result(SENT))
        # Two million lists of two items, which would block the event loop for seconds.
        assert await longest_stop(opened.results.read(id_of(cut), select=doubled(21))) < 0.5


@pytest.mark.process
@pytest.mark.parametrize("times", [1, 60])
async def test_an_expression_selects_the_same_whether_it_takes_few_steps_or_many(times: int) -> None:
    expression = "items[].[" + ", ".join(["id"] * times) + "]"
    rows = [[row["id"]] * times for row in ROWS]
    taken = len(ROWS) * times
    assert (taken > AT_ONCE) == (times > 1)
    async with gate() as opened:
        for sent in (text_result(SENT), text_result("See structured content", structuredContent={"items": ROWS})):
            result = await opened.pass_through(sent, select=Projection(expression))
            assert json.loads(texts(result)[0]) == rows
        kept = await opened.pass_through(text_result(SENT), select=Projection("items[0]"))
        found = await opened.results.read(id_of(kept), select=expression)
        assert json.loads(texts(found)[0]) == rows


@pytest.mark.process
async def test_the_limits_of_expressions_are_those_of_the_settings() -> None:
    limits = Limits(expression=100, expression_steps=1_000, expression_output=10_000)
    with pytest.raises(InvalidRequest, match="maximum 100"):
        Projection("a" * 101, limits)
    async with gate() as opened:
        narrow = await opened.pass_through(text_result(SENT), select=Projection("items[].[id]", limits))
        assert "exceeds 1,000 steps" in texts(narrow)[-1]
        wide = await opened.pass_through(text_result(SENT), select=Projection("[items, items]", limits))
        assert "Not selected" in texts(wide)[-1]
