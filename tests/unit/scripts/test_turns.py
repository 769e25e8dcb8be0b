"""Scripts take turns; those that wait for a person keep nobody from running."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts import workers
from mcp_optimizer.scripts.workers import ScriptTurns
from mcp_optimizer.upstream.request_errors import RpcError

AT_ONCE = 3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 0.02)


async def test_one_caller_leaves_a_turn_for_others() -> None:
    all_turns = ScriptTurns(AT_ONCE)
    async with AsyncExitStack() as running:
        for _ in range(AT_ONCE - 1):
            await running.enter_async_context(all_turns.of("a"))
        with pytest.raises(InvalidRequest, match="Too many scripts"):
            await running.enter_async_context(all_turns.of("a"))
        await running.enter_async_context(all_turns.of("b"))
        with pytest.raises(InvalidRequest, match="Too many scripts"):
            await running.enter_async_context(all_turns.of("c"))
    async with all_turns.of("a"), all_turns.of("a"), all_turns.of("b"):
        pass


async def test_scripts_that_wait_for_a_person_keep_no_script_from_running() -> None:
    all_turns = ScriptTurns(AT_ONCE)
    async with AsyncExitStack() as waiting:
        for caller in "abc":
            turn = await waiting.enter_async_context(all_turns.of(caller))
            turn.ask()
            turn.ask()
        async with AsyncExitStack() as running:
            for caller in "def":
                await running.enter_async_context(all_turns.of(caller))
            with pytest.raises(InvalidRequest, match="Too many scripts"):
                await running.enter_async_context(all_turns.of("g"))


async def test_more_questions_than_places_are_refused_until_a_place_is_free() -> None:
    all_turns = ScriptTurns(1)
    async with all_turns.of("a") as first:
        first.ask()
        async with all_turns.of("b") as second:
            with pytest.raises(RpcError, match="Too many scripts wait for an answer"):
                second.ask()
    async with all_turns.of("b") as second:
        second.ask()
