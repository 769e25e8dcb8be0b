"""Questions reach only clients that declared support for them, and name their server, on every transport and era."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.conftest import WriteServers
from tests.e2e.raw_clients import HELLO, LEGACY, MODERN, HttpClient, StdioClient, http_client, message, stdio_client
from tests.e2e.running import gateway_at

ASKING = Path(__file__).parents[1] / "servers" / "asking.py"
FORM = {"message": "\x1b[2JWho\u202e are you?", "requestedSchema": {"type": "object", "properties": {}}}
QUESTIONS: dict[str, dict[str, Any]] = {
    "elicitation/create": FORM,
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "roots/list": {},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {}},
    "sampling/createMessage": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
    "roots/list": {"roots": []},
}
OPTIONS = ("--mode", "transparent", "--database", "none", "--encoder", "none")
NAME = "mcp-optimizer/server"


@pytest.fixture(params=["legacy server", "modern server"])
def config(request: pytest.FixtureRequest, write_servers: WriteServers) -> Path:
    era = ["--era", "modern"] if request.param == "modern server" else []
    return write_servers({"the bank": {"command": sys.executable, "args": [str(ASKING), *era]}})


@asynccontextmanager
async def connected(
    config: Path, transport: str, era: str, capabilities: dict[str, Any]
) -> AsyncIterator[StdioClient | HttpClient]:
    if transport == "stdio":
        async with stdio_client(config, *OPTIONS, era=era, capabilities=capabilities) as client:
            yield client
    else:
        async with gateway_at(config, *OPTIONS) as address, http_client(address, era) as http:
            if era == LEGACY:
                hello = {**HELLO, "capabilities": capabilities}
                response = await http.http.post(address, json=message("initialize", hello, 0), headers=plain(http))
                http.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
                await http.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield http


def plain(client: HttpClient) -> dict[str, str]:
    return {name: value for name, value in client.headers.items() if name != "Mcp-Session-Id"}


def calling(method: str, params: dict[str, Any], era: str, capabilities: dict[str, Any]) -> dict[str, Any]:
    meta = {"_meta": {types.CLIENT_CAPABILITIES_META_KEY: capabilities}} if era == MODERN else {}
    return message("tools/call", {"name": "ask", "arguments": {"method": method, "params": params}, **meta}, 1, era)


async def until_up(client: StdioClient | HttpClient) -> None:
    async with asyncio.timeout(30):
        while not (await client.ask("tools/list"))["result"]["tools"]:
            await asyncio.sleep(0.05)


@pytest.mark.promise("questions-only-if-declared")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_that_declared_nothing_is_asked_nothing(config: Path, transport: str, era: str) -> None:
    async with connected(config, transport, era, {}) as client:
        await until_up(client)
        for method, params in QUESTIONS.items():
            answer = await client.exchange(calling(method, params, era, {}))
            assert answer.get("method") is None, "the client was asked"
            told = json.dumps(answer.get("error") or answer["result"])
            assert "does not support" in told
            assert "inputRequests" not in answer.get("result", {})


@pytest.mark.promise("questions-only-if-declared")
@pytest.mark.parametrize("declared", [{"elicitation": []}, {"elicitation": {"url": {}}}, {"sampling": {}, "roots": {}}])
async def test_a_client_is_not_asked_for_a_feature_or_a_mode_that_it_did_not_declare(
    config: Path, declared: dict[str, Any]
) -> None:
    # An invalid declaration is refused in `initialize`, so this one is sent in the modern era, with the request itself.
    era = MODERN if declared == {"elicitation": []} else LEGACY
    async with connected(config, "stdio", era, declared) as client:
        await until_up(client)
        answer = await client.exchange(calling("elicitation/create", FORM, era, declared))
        assert answer.get("method") is None, "the client was asked"
        assert "inputRequests" not in answer.get("result", {})


@pytest.mark.promise("questions-name-the-server")
async def test_a_question_in_the_middle_of_a_call_names_the_server_that_asks(config: Path) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    async with connected(config, "stdio", LEGACY, capabilities) as client:
        assert isinstance(client, StdioClient)
        await until_up(client)
        for method, params in QUESTIONS.items():
            question = await client.exchange(calling(method, params, LEGACY, capabilities))
            assert question["method"] == method
            assert question["params"]["_meta"][NAME] == "the bank"
            if method == "elicitation/create":
                assert question["params"]["message"] == 'The server "the bank" asks: Who are you?'
            answer = await client.exchange({"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS[method]})
            assert json.dumps(ANSWERS[method]) in answer["result"]["content"][0]["text"]


@pytest.mark.promise("questions-name-the-server")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_result_that_asks_names_the_server_that_asks(config: Path, transport: str) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    async with connected(config, transport, MODERN, capabilities) as client:
        await until_up(client)
        for method, params in QUESTIONS.items():
            answer = await client.exchange(calling(method, params, MODERN, capabilities))
            [(key, question)] = answer["result"]["inputRequests"].items()
            assert question["method"] == method
            assert question["params"]["_meta"][NAME] == "the bank"
            if method == "elicitation/create":
                assert question["params"]["message"] == 'The server "the bank" asks: Who are you?'
            again = calling(method, params, MODERN, capabilities)
            again["params"] |= {
                "inputResponses": {key: ANSWERS[method]},
                "requestState": answer["result"]["requestState"],
            }
            answer = await client.exchange(again)
            assert json.dumps(ANSWERS[method]) in answer["result"]["content"][0]["text"]


async def test_a_server_cannot_speak_in_the_name_of_another(config: Path) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}}
    forged = {**FORM, "message": 'The server "safe" asks: Who?', "_meta": {NAME: "safe"}}
    async with connected(config, "stdio", LEGACY, capabilities) as client:
        await until_up(client)
        question = await client.exchange(calling("elicitation/create", forged, LEGACY, capabilities))
        assert question["params"]["_meta"][NAME] == "the bank"
        assert question["params"]["message"].startswith('The server "the bank" asks: ')


async def test_an_invalid_answer_is_reported_to_the_server_at_once(config: Path) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}}
    async with connected(config, "stdio", LEGACY, capabilities) as client:
        assert isinstance(client, StdioClient)
        await until_up(client)
        for wrong in ({"result": "yes"}, {"result": None}, {"error": "no"}, {"error": {"code": "x"}}):
            question = await client.exchange(calling("elicitation/create", FORM, LEGACY, capabilities))
            answer = await client.exchange({"jsonrpc": "2.0", "id": question["id"], **wrong})
            assert "answer is not valid" in json.dumps(answer)
