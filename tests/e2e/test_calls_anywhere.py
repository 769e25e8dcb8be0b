"""Answers in the middle of a call reach the gateway that asked, at whichever of three they arrive, in both eras."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.gateways import GatewayRows
from mcp_optimizer.db.history import StoredUse
from mcp_optimizer.domain.caller import Risk
from mcp_optimizer.domain.gateways import PeerGateway
from mcp_optimizer.runtime.signatures import OwnedNames, Signatures, new_owner
from tests.e2e.made_keys import made_key, revoke
from tests.e2e.raw_clients import ACCEPT, HELLO, LEGACY, MODERN, answer_of, message
from tests.e2e.test_relay import Person, text
from tests.e2e.three_gateways import Cluster, Gateway, three_gateways
from tests.postgres import Postgres, ask
from tests.waiting import until
from tests.warm import warm_server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

ASKING = Path(__file__).parents[1] / "servers" / "conformant.py"
CAN_BE_ASKED: dict[str, Any] = {"elicitation": {"form": {}}}
GONE = "has ended or does not answer"
QUESTION = {"name": "call_tool", "arguments": {"tool_name": "ask_with_pid", "parameters": {}}}


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def keys(database: str) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_OPTIMIZER_DATABASE", database)
        yield {name: asyncio.run(made_key(name, Risk.DESTRUCTIVE)) for name in ("ada", "bob")}


@pytest.fixture(scope="module")
def cluster(database: str, keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assert keys
    config = tmp_path_factory.mktemp("calls") / "mcp.json"
    asking = warm_server(ASKING, "--era", "legacy")
    config.write_text(json.dumps({"mcpServers": {"old": asking}}))
    with three_gateways(config, database, "--require-auth") as cluster:
        yield cluster


class Asked:
    """A client that posts its messages wherever it likes, as one of the callers."""

    def __init__(self, http: httpx2.AsyncClient, key: str) -> None:
        self.http = http
        self.headers = {**ACCEPT, "Authorization": f"Bearer {key}"}
        self.number = 0

    async def call(self, gateway: Gateway, **answers: Any) -> dict[str, Any]:
        """A modern call of the tool that asks, or its continuation."""
        self.number += 1
        meta = {types.CLIENT_CAPABILITIES_META_KEY: CAN_BE_ASKED}
        request = message("tools/call", {**QUESTION, **answers, "_meta": meta}, self.number, MODERN)
        routing = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "call_tool"}
        response = await self.http.post(gateway.address, json=request, headers={**self.headers, **routing})
        answer = answer_of(response)
        assert answer["id"] == self.number, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def answer(self, gateway: Gateway, state: str) -> str:
        given = {"q1": {"action": "accept", "content": {"answer": "yes"}}}
        result = await self.call(gateway, inputResponses=given, requestState=state)
        said: str = result["content"][0]["text"]
        return said

    async def reach(self, gateway: Gateway, state: str) -> str:
        """What the gateway that asked says to the answer, at whichever it arrives.

        That one has 1.5 s to prove itself, which a busy machine may take from it; so the answer is given again.
        """
        return await again(lambda: self.answer(gateway, state))


async def again(say: Callable[[], Awaitable[str]]) -> str:
    """What is said at last, while it is that a gateway does not answer; at most the third time."""
    for _ in range(2):
        if GONE not in (said := await say()):
            return said
    return await say()


@asynccontextmanager
async def asked(key: str) -> AsyncIterator[Asked]:
    async with httpx2.AsyncClient(timeout=30) as http:
        yield Asked(http, key)


@asynccontextmanager
async def sdk_client(cluster: Cluster, key: str, mode: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=30) as http:
        transport = streamable_http_client(cluster.address, http_client=http)
        async with Client(transport, mode=mode, **Person().callbacks()) as client:
            yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_sdk_client_answers_questions_at_whichever_gateway_has_its_turn(
    cluster: Cluster, keys: dict[str, str], mode: str
) -> None:
    async with sdk_client(cluster, keys["ada"], mode) as client:

        async def call(tool: str, **given: str) -> str:
            return text(await client.call_tool("call_tool", {"tool_name": tool, "parameters": given}))

        for _ in range(2):
            assert await again(lambda: call("ask_twice")) == "accept Ada; accept Ada"
            assert await again(lambda: call("test_sampling", prompt="Hi")) == "LLM response: Ada heard: Hi"


async def test_only_the_caller_that_was_asked_continues_its_call_and_only_once(
    cluster: Cluster, keys: dict[str, str]
) -> None:
    first, second, third = cluster.gateways
    async with asked(keys["ada"]) as ada, asked(keys["bob"]) as bob:
        state = (await ada.call(first))["requestState"]
        name, owner, rest, signature = state.split(".")
        for client, forged in (
            (bob, state),
            (ada, f"{name}.{'0' * 16}.{rest}.{signature}"),
            (ada, f"{name}.{owner}.{rest}.{signature[::-1]}"),
            (ada, f"{name}.{owner}.{rest}"),
            (ada, state + "x" * 100_000),
        ):
            assert (await client.answer(second, forged)).startswith("No call waits for these answers")
        assert (await bob.answer(first, state)).startswith("No call waits for these answers")
        assert await ada.reach(second, state) == "Answered: accept"
        for gateway in (third, second, first):
            assert (await ada.reach(gateway, state)).startswith("No call waits for these answers")


async def test_a_client_is_told_that_the_gateway_with_its_call_is_gone(cluster: Cluster, keys: dict[str, str]) -> None:
    first, second, third = cluster.gateways
    async with asked(keys["ada"]) as ada:
        state = (await ada.call(first))["requestState"]
        await asyncio.to_thread(first.kill)
        assert GONE in await ada.answer(second, state)
        await asyncio.to_thread(cluster.restart, first)
        for gateway in (first, third):
            assert GONE in await ada.answer(gateway, state)


async def test_a_credential_reaches_nobody_who_is_not_a_gateway_and_nobody_waits_for_one_that_is_silent(
    cluster: Cluster, keys: dict[str, str], database: str
) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        # Until the gateway gives up.
        heard.append(await reader.read())
        writer.close()

    opened = await open_database(database)
    stranger = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        key, now = await StoredUse(opened).key(), time.time_ns() // 1_000_000
        # As if a gateway had died and somebody else had got its port.
        dead = PeerGateway(new_owner(), f"http://127.0.0.1:{stranger.sockets[0].getsockname()[1]}", "1", now)
        await GatewayRows(opened).seen(dead, now)

        async def ours() -> bytes:
            return key

        [(principal,)] = ask(database, "SELECT 'key:' || id FROM api_key WHERE name = 'ada'")
        state = await OwnedNames(dead.id, Signatures(ours)).waiting_call(principal)
        async with asked(keys["ada"]) as ada:

            async def is_tried() -> bool:
                # A gateway reads where the others are at most once a second.
                assert GONE in await ada.answer(cluster.gateways[1], state)
                return bool(heard)

            await until(is_tried)
        assert not any(keys["ada"].encode() in one for one in heard)
        await GatewayRows(opened).leave(dead.id)
    finally:
        stranger.close()
        await stranger.wait_closed()
        await opened.close()


async def test_a_legacy_call_is_cancelled_at_another_gateway_than_the_one_that_makes_it(
    cluster: Cluster, keys: dict[str, str]
) -> None:
    first, second, _ = cluster.gateways
    async with asked(keys["ada"]) as ada:
        headers = {**ada.headers, "MCP-Protocol-Version": LEGACY}
        hello = message("initialize", {**HELLO, "capabilities": CAN_BE_ASKED}, 0)
        opened = await ada.http.post(first.address, json=hello, headers=headers)
        headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]

        async def post(gateway: Gateway, value: dict[str, Any]) -> httpx2.Response:
            return await ada.http.post(gateway.address, json=value, headers=headers)

        async with ada.http.stream(
            "POST", first.address, json=message("tools/call", QUESTION, 7), headers=headers
        ) as stream:
            lines = stream.aiter_lines()
            while "elicitation/create" not in await anext(lines):
                pass
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            assert (await post(second, cancel)).status_code == 202

            async def is_cancelled() -> bool:
                named = {"tool_name": "was_cancelled", "parameters": {}}
                answer = await post(first, message("tools/call", {"name": "call_tool", "arguments": named}, 8))
                return "ask_with_pid" in json.dumps(answer_of(answer)["result"]["content"])

            await until(is_cancelled)


async def test_a_revoked_key_opens_no_gateway_any_more(
    cluster: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_DATABASE", database)
    eve = await made_key("eve")

    async def statuses() -> set[int]:
        request, routing = message("tools/list", {}, 1, MODERN), {"Mcp-Method": "tools/list"}
        headers = {**ACCEPT, **routing, "MCP-Protocol-Version": MODERN, "Authorization": f"Bearer {eve}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            return {(await http.post(gateway.address, json=request)).status_code for gateway in cluster.gateways}

    assert await statuses() == {200}
    await revoke("eve")

    async def is_over() -> bool:
        return await statuses() == {401}

    await until(is_over)
