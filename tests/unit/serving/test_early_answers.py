"""A client that is answered early cannot tell: it gets what the server itself would have answered."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from mcp_optimizer import Optimizer, __version__
from mcp_optimizer.config.known_clients.habits import HABITS
from mcp_optimizer.domain.own_tools import Signpost, own_tools
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits
from mcp_optimizer.serving.early_answers import FirstRequests
from tests.trying import at_most
from tests.unit.serving.first_exchange import FIRST, answered_early, by_id, encoded, replies_to, tools_of

NOTES_SERVER = Path(__file__).parents[2] / "servers" / "notes.py"
NOTHING: dict[str, Any] = {"database": "none", "encoder": "none", "history": False}
CAPABILITIES: list[dict[str, Any]] = [
    {},
    {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}},
    {"tools": True, "prompts": True, "logging": False, "elicitation": {}, "roots": {"listChanged": False}},
    {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}, "experimental": {"x": {"y": 1.5}}},
]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
async def optimizer() -> AsyncIterator[Optimizer]:
    async with Optimizer.from_config({}, **NOTHING) as optimizer:
        yield optimizer


def request(method: str, number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}


def hello(version: str = "2025-06-18", number: Any = 0, **changed: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return request("initialize", number, **{**params, **changed})


def modern(method: str, number: Any = 1, **changed: Any) -> dict[str, Any]:
    envelope = {
        types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
        types.CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
        types.CLIENT_CAPABILITIES_META_KEY: {},
    }
    return request(method, number, _meta={**envelope, **changed})


async def same(optimizer: Optimizer, messages: list[Any], early: int | None = None) -> int:
    """Checks that the client gets the same either way; how many replies came early."""
    count = len(messages) if early is None else early
    assert by_id(await replies_to(optimizer, messages, count)) == by_id(await replies_to(optimizer, messages))
    return answered_early(encoded(messages[:count]))


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS, "banana", ""])
async def test_every_client_gets_the_same_in_every_legacy_version(optimizer: Optimizer, version: str) -> None:
    for name in (*HABITS, "unheard-of"):
        info = {"name": name, "version": "2.1", "title": "T", "websiteUrl": "https://example.com", "other": [1]}
        messages = [hello(version, clientInfo=info), INITIALIZED, request("tools/list"), request("ping", 2)]
        assert await same(optimizer, messages) == 3


@pytest.mark.parametrize("capabilities", CAPABILITIES)
async def test_a_client_gets_the_same_whatever_it_can_do(optimizer: Optimizer, capabilities: dict[str, Any]) -> None:
    messages = [hello(capabilities=capabilities), INITIALIZED, request("tools/list", "a", _meta={"progressToken": 7})]
    assert await same(optimizer, messages) == 2
    changed = {types.CLIENT_CAPABILITIES_META_KEY: capabilities}
    assert await same(optimizer, [modern("server/discover", **changed), modern("tools/list", 2, **changed)]) == 2


async def test_split_calls_are_listed_early_too() -> None:
    split = FirstRequests(lambda _: own_tools(split_calls=True), __version__, DEFAULT_LIMITS, Signpost())
    messages = [hello(), request("tools/list")]
    async with Optimizer.from_config({}, split_calls=True, **NOTHING) as optimizer:
        early = await replies_to(optimizer, messages, 2, split)
        assert by_id(early) == by_id(await replies_to(optimizer, messages))


@pytest.mark.parametrize(
    ("client", "is_split"),
    [("codex-mcp-client", True), ("claude-code", True), ("qwen-cli-mcp-client-x", True), ("mcp", False)],
)
async def test_clients_that_ask_by_tool_get_calls_that_only_read_apart(client: str, is_split: bool) -> None:
    requests = FirstRequests(tools_of, __version__, DEFAULT_LIMITS)
    opening = hello()
    opening["params"]["clientInfo"] = {"name": client, "version": "1"}
    messages = [opening, request("tools/list")]
    async with Optimizer.from_config({}, **NOTHING) as optimizer:
        early = by_id(await replies_to(optimizer, messages, 2, requests))
        assert early == by_id(await replies_to(optimizer, messages))
    assert ("call_tool_read" in json.dumps(early)) is is_split


async def test_the_server_agrees_with_what_was_answered_early(
    optimizer: Optimizer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await replies_to(optimizer, [hello(), INITIALIZED, request("tools/list"), request("ping", 2)], 4)
        await replies_to(optimizer, [modern("server/discover"), modern("tools/list", 2)], 2)
    assert caplog.records == []


async def test_an_answer_that_the_server_would_not_have_given_is_reported(
    optimizer: Optimizer, caplog: pytest.LogCaptureFixture
) -> None:
    other = FirstRequests(lambda _: [], __version__, DEFAULT_LIMITS)
    replies = await replies_to(optimizer, [hello(), request("tools/list")], 2, other)
    assert [reply["id"] for reply in replies] == [0, 1]
    assert "answered early" in caplog.text


async def test_a_client_may_use_an_id_again_once_it_was_answered(optimizer: Optimizer) -> None:
    messages = [hello(number=1), request("ping", 1), request("ping", "1"), request("tools/list", 1)]
    replies = await replies_to(optimizer, messages, 4)
    assert [reply["id"] for reply in replies] == [1, 1, "1", 1]
    assert all("result" in reply for reply in replies)


async def test_no_limit_on_requests_in_progress_is_reached_by_those_that_were_answered() -> None:
    messages = [hello(), *(request("ping", number) for number in range(1, 20)), request("tools/list", 20)]
    async with Optimizer.from_config({}, limits={"requests": 1}, **NOTHING) as optimizer:
        replies = await replies_to(optimizer, messages, len(messages))
    assert [reply["id"] for reply in replies if "result" in reply] == list(range(21))


LISTEN = {"toolsListChanged": True, "promptsListChanged": False}
LISTEN_ACK = "notifications/subscriptions/acknowledged"


async def test_what_is_left_to_the_server_does_not_hold_up_what_follows(optimizer: Optimizer) -> None:
    called = request("tools/call", 1, name="list_tools", arguments={})
    left = [called, request("logging/setLevel", 2, level="info"), {**INITIALIZED, "method": "notifications/x"}]
    messages = [hello(), INITIALIZED, *left, request("prompts/list", 3), request("tools/list", 4)]
    assert answered_early(encoded(messages)) == 2
    replies = await replies_to(optimizer, messages, len(messages))
    assert [reply["id"] for reply in replies[:2]] == [0, 4]
    assert sorted(reply["id"] for reply in replies) == [0, 1, 2, 3, 4]
    assert all("result" in reply for reply in replies)


async def test_an_id_that_is_in_use_is_not_answered_early(optimizer: Optimizer) -> None:
    called = request("tools/call", 1, name="list_tools", arguments={})
    messages = [hello(), called, request("tools/list", "1"), request("ping", 2)]
    replies = await replies_to(optimizer, messages, 2)
    assert replies[0]["id"] == 0
    assert len(replies) == 4


@pytest.mark.parametrize("early", [0, 3])
async def test_a_client_that_listens_is_told_once_that_it_does(optimizer: Optimizer, early: int) -> None:
    listen = modern("subscriptions/listen", "s")
    listen["params"]["notifications"] = LISTEN
    # One that listens for resources is left to the server.
    further = modern("subscriptions/listen", "r")
    further["params"]["notifications"] = {"resourceSubscriptions": ["note://1"]}
    messages = [modern("server/discover", 0), listen, modern("tools/list", 1), further, modern("prompts/list", 2)]
    assert answered_early(encoded(messages)) == 3
    replies = await replies_to(optimizer, messages, early)
    told = [reply["params"] for reply in replies if reply.get("method") == LISTEN_ACK]
    assert [params["_meta"]["io.modelcontextprotocol/subscriptionId"] for params in told] == ["s", "r"]
    assert told[0]["notifications"] == {"toolsListChanged": True}


@pytest.mark.parametrize("early", [0, 1, 2, 3])
async def test_whoever_asks_and_gives_up_can_shake_hands(optimizer: Optimizer, early: int) -> None:
    messages = [modern("server/discover", 0), hello(number=1), INITIALIZED, request("tools/list", 2)]
    replies = await replies_to(optimizer, messages, early)
    assert [reply["id"] for reply in replies] == [0, 1, 2]
    assert all("result" in reply for reply in replies)


async def test_before_the_era_is_decided_nothing_is_answered_after_something_unknown() -> None:
    lines = encoded([modern("server/discover"), request("tools/call", 2, name="x"), hello(number=3)])
    assert answered_early(lines) == 1


LISTS = ("prompts/list", "resources/list", "resources/templates/list")


@pytest.mark.parametrize("method", LISTS)
def test_lists_of_what_servers_have_are_left_to_the_server_and_what_follows_is_answered(method: str) -> None:
    assert answered_early(encoded([hello(), INITIALIZED, request(method, 1), request("tools/list", 2)])) == 2
    assert answered_early(encoded([modern(method, 1), modern("tools/list", 2)])) == 1


@pytest.mark.process
@pytest.mark.parametrize("early", [0, 4])
async def test_lists_that_come_before_the_server_is_there_have_what_servers_have(early: int, tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(NOTES_SERVER), str(tmp_path)]}
    messages = [hello(), INITIALIZED, request("prompts/list", 1), request("resources/list", 2)]
    async with Optimizer.from_config({"notes": server}, **NOTHING) as optimizer:
        replies = {reply["id"]: reply for reply in await replies_to(optimizer, messages, early) if "id" in reply}
    assert replies[1]["result"]["prompts"] == [{"name": "summarize"}]
    assert [entry["uri"] for entry in replies[2]["result"]["resources"]] == ["note://1"]


UNUSUAL_IDS: list[Any] = [None, 1.0, 1.5, True, [], {}, 2**63, -(2**63), "x" * 4_001]
UNUSUAL: list[Any] = [
    b"",
    b"   ",
    b"{",
    b"\xff",
    b"[]",
    b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping", "params": {"x": 1e999}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"progressToken": NaN}}}',
    b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
    b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    *(request("ping", number) for number in UNUSUAL_IDS),
    request("ping", 1, _meta={"progressToken": 1.5}),
    request("ping", 1, _meta={"progressToken": True}),
    request("ping", 1, _meta=[]),
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "result": {}},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "method": ["ping"]},
    request("tools/list", 1, cursor="x"),
    request("prompts/list", 1, cursor="x"),
    request("tools/list", 1, padding="x" * 10_000),
    hello(),
    modern("tools/list"),
]


@pytest.mark.parametrize("message", UNUSUAL, ids=lambda message: str(message)[:70])
async def test_what_is_unusual_waits_for_the_server(message: Any) -> None:
    assert answered_early(encoded([hello(), message])) == 1


BEFORE_THE_HANDSHAKE: list[Any] = [
    INITIALIZED,
    request("tools/list"),
    hello(number=None),
    hello(clientInfo={"name": "x" * 257, "version": "1"}),
    hello(clientInfo={"name": "x"}),
    hello(clientInfo={"name": "x", "version": 1}),
    hello(clientInfo={"name": "x", "version": "1", "icons": [{}]}),
    hello(capabilities={"roots": {"listChanged": "perhaps"}}),
    hello(capabilities={"experimental": {"x": True}}),
    hello(capabilities={"tasks": 7}),
    hello(capabilities=[]),
    hello(protocolVersion=7),
    hello(_meta={types.PROTOCOL_VERSION_META_KEY: "2026-07-28"}),
    modern("ping"),
    modern("initialize"),
    modern("tools/list", **{types.PROTOCOL_VERSION_META_KEY: "2030-01-01"}),
    modern("tools/list", **{types.CLIENT_INFO_META_KEY: {}}),
    modern("tools/list", **{types.LOG_LEVEL_META_KEY: "loud"}),
]


@pytest.mark.parametrize("message", BEFORE_THE_HANDSHAKE, ids=lambda message: str(message)[:110])
async def test_nothing_else_opens_a_conversation_early(message: Any) -> None:
    assert answered_early(encoded([message])) == 0


def test_the_limits_hold_before_the_server_is_there() -> None:
    strict = FirstRequests(lambda _: (), __version__, Limits(introduction_bytes=2_000, client_name=16, identifier=100))
    info = {"name": "x" * 17, "version": "1"}
    for message in (hello(clientInfo=info), hello(number="x" * 101), hello(padding="x" * 2_000)):
        assert answered_early(encoded([message]), strict) == 0


TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["2025-03-26", "2026-07-28", "claude-code", "x" * 300]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=4,
)
NAMES = "experimental extensions roots sampling elicitation listChanged context tools form url tasks other".split()
PARTS = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(ANYTHING, st.dictionaries(st.sampled_from(NAMES), st.one_of(ANYTHING, st.just({})), max_size=2)),
    max_size=3,
)
INFOS = st.fixed_dictionaries(
    {"name": st.one_of(TEXTS, ANYTHING), "version": TEXTS},
    optional={"title": ANYTHING, "websiteUrl": TEXTS, "icons": ANYTHING, "description": TEXTS, "_meta": ANYTHING},
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda info, parts: hello(clientInfo=info, capabilities=parts), INFOS, PARTS),
        st.builds(hello, TEXTS),
        st.builds(
            lambda method, info, parts: modern(
                method, **{types.CLIENT_INFO_META_KEY: info, types.CLIENT_CAPABILITIES_META_KEY: parts}
            ),
            st.sampled_from(["server/discover", "tools/list", "ping"]),
            INFOS,
            PARTS,
        ),
        st.sampled_from([hello(), request("ping"), request("tools/list"), request("prompts/list"), INITIALIZED]),
        st.sampled_from([modern("tools/list"), modern("server/discover"), request("no/such/method"), hello("x")]),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=at_most(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES, begun=st.booleans(), data=st.data())
async def test_any_conversation_is_the_same_with_and_without_early_answers(
    optimizer: Optimizer, messages: list[dict[str, Any]], begun: bool, data: st.DataObject
) -> None:
    said = [hello(), *messages] if begun else messages
    numbered = [{**message, "id": f"n{at}"} if "id" in message else message for at, message in enumerate(said)]
    await same(optimizer, numbered, data.draw(st.integers(1, len(numbered))))


def test_a_usual_client_is_answered_early() -> None:
    """So that the comparisons above compare something."""
    assert answered_early(encoded([request("ping", -1), hello(), INITIALIZED, request("tools/list", "x")]), FIRST) == 3
