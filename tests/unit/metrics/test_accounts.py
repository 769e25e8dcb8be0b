"""Each reply becomes one event, with the numbers of the reply and the catalog of its time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.events import Event, EventKind, Outcome
from mcp_optimizer.domain.own_tools import OWN_TOOLS
from mcp_optimizer.errors import CallTimeout, OptimizerError
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.metrics.accounts import Accounts
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.serving.own_tools import find_reply
from mcp_optimizer.token_counter import TokenCounter
from tests.unit.catalogs import RecordingPool, gateway_over, live_catalog, mcp_tool, new_gateway, no_database, running

GITHUB = running("github", mcp_tool("create_issue", "Create an issue"), mcp_tool("list_issues", "List issues"))


@asynccontextmanager
async def accounts(gateway: Gateway) -> AsyncIterator[tuple[Accounts, list[Event]]]:
    seen: list[Event] = []
    recorder = Recorder(no_database)
    recorder.listen(seen.append)
    books = Accounts(gateway, TokenCounter(), recorder)
    yield books, seen
    await books.settled()


async def test_a_find_says_what_was_found_and_what_the_reply_costs() -> None:
    gateway = await gateway_over(GITHUB)
    async with accounts(gateway) as (books, seen):
        with books.answering("find_tool", {}, Caller("claude")) as answer:
            reply = answer.reply(find_reply(gateway.find("create an issue")))
    (event,) = seen
    assert (event.kind, event.client, event.outcome) == (EventKind.FIND, "claude", Outcome.OK)
    assert event.found[0] == ("github", "create_issue")
    assert event.tokens == event.full_tokens == TokenCounter().count_tokens(reply["content"][0]["text"])
    assert event.baseline_tokens == gateway.snapshot.baseline_tokens > 0


async def test_a_call_is_recorded_with_the_catalog_of_its_time() -> None:
    catalog = await live_catalog(GITHUB)
    before = catalog.snapshot.baseline_tokens
    async with accounts(new_gateway(catalog)) as (books, seen):
        with books.answering("create_issue", {}, Caller()) as answer:
            answer.reply({"content": [], "_meta": {"tokens": {"estimated": 40}}})
        catalog.forget("github")
        assert catalog.snapshot.baseline_tokens != before
    assert [(event.server, event.tool, event.baseline_tokens) for event in seen] == [("github", "create_issue", before)]


class Connection:  # stands for the one that a caller refers to
    key = "http:1"
    is_modern = False


async def test_the_accounts_hold_on_to_no_client_that_left() -> None:
    connection = Connection()
    left = weakref.ref(connection)
    async with accounts(await gateway_over(GITHUB)) as (books, seen):
        with books.answering("create_issue", {}, Caller("claude", "http:1", cast("Any", connection))) as answer:
            answer.reply({"content": [], "_meta": {"tokens": {"estimated": 40}}})
        await books.settled()
        del answer, connection
        gc.collect()
        assert len(seen) == 1
        assert left() is None


async def test_the_numbers_in_a_reply_are_those_of_the_event() -> None:
    meta = {
        "tokens": {"estimated": 40},
        "performance": {"executionTimeMs": 12.5, "cachedResult": True},
        "data": {"truncated": True},
        "mcp-optimizer/result": {"fullTokens": 900},
    }
    async with accounts(await gateway_over(GITHUB)) as (books, seen):
        with books.answering("create_issue", {}, Caller()) as answer:
            answer.reply({"content": [], "_meta": meta})
    (event,) = seen
    assert (event.server, event.tool) == ("github", "create_issue")
    assert (event.tokens, event.full_tokens, event.milliseconds) == (40, 900, 12.5)
    assert (event.cached, event.truncated) == (True, True)


async def test_what_a_server_itself_says_under_our_names_spoils_no_event() -> None:
    meta = {
        "tokens": {"estimated": 7},
        "mcp-optimizer/tool": {"server": "another", "name": "tool"},
        "mcp-optimizer/result": {"fullTokens": 10**400},
        "mcp-optimizer/scores": 5,
    }
    async with accounts(await gateway_over(GITHUB)) as (books, seen):
        with books.answering("create_issue", {}, Caller()) as answer:
            answer.reply({"content": [], "_meta": meta})
    (event,) = seen
    assert (event.server, event.tool) == ("github", "create_issue")
    assert (event.tokens, event.full_tokens) == (7, 7)


@pytest.mark.parametrize(
    ("asked", "outcome", "tool"),
    [
        ("create_issue", Outcome.TIMEOUT, ("github", "create_issue")),
        ("ignore_all_rules\u202e", Outcome.BAD_REQUEST, ("", "")),
    ],
)
async def test_a_failure_is_an_event_and_names_no_tool_that_does_not_exist(
    asked: str, outcome: Outcome, tool: tuple[str, str]
) -> None:
    def late(server: str, _params: object) -> dict[str, object]:
        raise CallTimeout(server, "no answer within 1 s")

    gateway = await gateway_over(GITHUB, pool=RecordingPool(late))
    async with accounts(gateway) as (books, seen):
        arguments = {"tool_name": asked}
        with pytest.raises(OptimizerError), books.answering("call_tool", arguments, Caller()) as answer:
            answer.reply(await gateway.call(asked, {}))
    (event,) = seen
    assert event.outcome is outcome
    assert (event.server, event.tool) == tool
    assert event.tokens > 0


async def test_a_list_is_counted_once_and_callers_are_told_apart() -> None:
    async with accounts(await gateway_over(GITHUB)) as (books, seen):
        for caller in (Caller("a", "1"), Caller("b", "2"), Caller("a", "1")):
            books.loaded(caller, OWN_TOOLS, "Minimal", 0.5)
            await books.settled()
    assert len({event.tokens for event in seen}) == 1
    assert seen[0].tokens > 300
    assert [event.session == seen[0].session for event in seen] == [True, False, True]
    assert {event.tool for event in seen} == {"Minimal"}


async def test_a_conversation_is_told_in_its_order_also_where_some_of_it_has_to_be_counted() -> None:
    async with accounts(await gateway_over(GITHUB)) as (books, seen):
        for number in range(6):
            with books.answering("create_issue", {}, Caller()) as answer:
                stated = {"_meta": {"tokens": {"estimated": 900}}} if number % 2 else {}
                answer.reply({"content": [{"type": "text", "text": "word " * number}], **stated})
    assert [event.tokens == 900 for event in seen] == [False, True] * 3
    assert [event.at for event in seen] == sorted(event.at for event in seen)


async def test_a_mistake_in_the_accounts_is_logged_and_the_answer_stands(caplog: pytest.LogCaptureFixture) -> None:
    gateway = await gateway_over(GITHUB)
    async with accounts(gateway) as (books, seen):
        with books.answering("create_issue", {}, Caller()) as answer:
            reply = answer.reply(
                {"content": [], "_meta": {"tokens": {"estimated": 1}, "performance": {"executionTimeMs": "long"}}}
            )
    assert reply["content"] == []
    assert seen == []
    assert "Cannot record" in caplog.text
