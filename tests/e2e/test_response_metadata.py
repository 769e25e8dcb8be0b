"""With real clients: the response-metadata document's example, field by field, and limits that lose nothing."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import answer_of
from tests.e2e.running import WARM, demo_entry, gateway_at, over_stdio, until_found

ARGUMENTS = {"queryDescription": "SELECT * FROM customers LIMIT 100", "maxRows": 100}
REQUEST = {
    "jsonrpc": "2.0",
    "method": "tools/call",
    "params": {"name": "secureDatabaseQuery", "arguments": ARGUMENTS},
    "id": 1,
}
OPTIONS = ("--token-estimate", "character_count_div_4", "--plain-meta")
WARNING = "Actual tokens may vary by LLM tokenizer"


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"sql": demo_entry("sql")})


def check_the_example(result: dict[str, Any], meta: dict[str, Any]) -> None:
    """Compare field by field; the token estimate and the execution time depend on the data and the machine."""
    [block] = result["content"]
    answer = json.loads(block["text"])
    assert list(answer) == ["query", "rowCount", "truncated", "columnNames", "data"]
    assert answer["truncated"] is False
    assert (answer["query"], answer["rowCount"]) == (ARGUMENTS["queryDescription"], 100)
    assert answer["columnNames"] == ["id", "name", "email"]
    assert len(answer["data"]) == 100
    assert result["isError"] is False
    assert meta["tokens"] == {
        "estimated": math.ceil(len(block["text"]) / 4),
        "approximationMethod": "character_count_div_4",
        "warning": WARNING,
    }
    assert list(meta["performance"]) == ["executionTimeMs", "cachedResult"]
    assert isinstance(meta["performance"]["executionTimeMs"], int)
    assert meta["performance"]["cachedResult"] is False
    assert meta["data"] == {"rowCount": 100, "columnCount": 3, "truncated": False, "maxRowsLimit": 1000}


@pytest.mark.requirement("C1", "C2", "C7", "RM-1", "RM-2", "RM-3", "RM-4", "RM-5", "RM-6", "RM-8", "RM-10", "RM-17")
async def test_the_example_over_http_as_raw_json(config: Path) -> None:
    async with gateway_at(config, *OPTIONS) as address, httpx2.AsyncClient() as http:
        headers = {"Accept": "application/json, text/event-stream"}
        hello = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        }
        response = await http.post(address, json=hello, headers=headers)
        headers |= {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        await http.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        async with asyncio.timeout(20):
            while True:
                response = await http.post(address, json=REQUEST, headers=headers)
                answer = answer_of(response)
                if "result" in answer:
                    break
                await asyncio.sleep(0.05)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    check_the_example(answer["result"], answer["result"]["meta"])
    check_the_example(answer["result"], answer["result"]["_meta"])
    assert list(answer["result"]["meta"]) == ["tokens", "performance", "data"]


@pytest.mark.requirement("C1", "C2", "RM-10")
async def test_the_example_over_stdio_as_raw_json(config: Path) -> None:
    gateway = await asyncio.create_subprocess_exec(
        *[*WARM, "serve", "--config", str(config), *OPTIONS],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    assert gateway.stdin is not None
    assert gateway.stdout is not None

    async def ask(message: dict[str, Any]) -> dict[str, Any]:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        gateway.stdin.write(json.dumps(message).encode() + b"\n")
        while True:
            answer: dict[str, Any] = json.loads(await asyncio.wait_for(gateway.stdout.readline(), 20))
            if answer.get("id") == message["id"]:
                return answer

    try:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        await ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        gateway.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        async with asyncio.timeout(20):
            while "result" not in (answer := await ask(REQUEST)):
                await asyncio.sleep(0.05)
    finally:
        gateway.stdin.close()
        await asyncio.wait_for(gateway.wait(), 20)
    check_the_example(answer["result"], answer["result"]["meta"])
    check_the_example(answer["result"], answer["result"]["_meta"])


@pytest.mark.requirement("C1", "C2")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_sdk_client_reads_the_same_as_result_meta(config: Path, transport: str) -> None:
    async def check(client: Client) -> None:
        await until_found(client, "run one SQL SELECT statement", "secureDatabaseQuery")
        for result in (
            await client.call_tool("secureDatabaseQuery", ARGUMENTS),
            await client.call_tool("call_tool", {"tool_name": "secureDatabaseQuery", "parameters": ARGUMENTS}),
        ):
            wire = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            check_the_example(wire, result.meta or {})
        failed = await client.call_tool("secureDatabaseQuery", {"queryDescription": "DROP TABLE customers"})
        assert failed.is_error
        assert set(failed.meta or {}) >= {"tokens", "performance"}
        found = await client.call_tool("find_tool", {"tool_description": "list tables"})
        assert set(found.meta or {}) >= {"tokens", "performance"}

    if transport == "stdio":
        async with over_stdio(config, *OPTIONS) as client:
            await check(client)
    else:
        async with gateway_at(config, *OPTIONS) as address, Client(address) as client:
            await check(client)


@pytest.mark.requirement("RM-4", "RM-8", "RM-14", "RM-15", "RM-16")
async def test_a_client_computes_costs_notices_what_is_slow_and_sees_what_was_cut(write_servers: WriteServers) -> None:
    """What the document's own client does with the metadata, in its own words."""
    config = write_servers({"sql": demo_entry("sql"), "slow": plain_server("slow")})
    async with over_stdio(config, "--max-rows", 10) as client:
        await until_found(client, "run one SQL SELECT statement", "secureDatabaseQuery")
        await until_found(client, "wait before answering", "sleep")
        answered = (await client.call_tool("secureDatabaseQuery", ARGUMENTS)).meta or {}
        slow = (await client.call_tool("call_tool", {"tool_name": "sleep", "parameters": {"seconds": 0.3}})).meta or {}
    input_cost_per_1k = 0.03
    assert 0 < (answered["tokens"]["estimated"] / 1000) * input_cost_per_1k < 1
    assert answered["performance"]["executionTimeMs"] < 300 <= slow["performance"]["executionTimeMs"]
    assert answered["data"]["truncated"]
    assert answered["data"]["maxRowsLimit"] == 10


@pytest.mark.requirement("C5", "RM-7")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_model_reads_on_in_a_result_that_was_cut(config: Path, transport: str) -> None:
    everything = {"queryDescription": "SELECT * FROM orders", "maxRows": 1000}

    async def check(client: Client) -> None:
        await until_found(client, "run one SQL SELECT statement", "secureDatabaseQuery")
        cut = await client.call_tool("secureDatabaseQuery", everything)
        meta = cut.meta or {}
        assert meta["data"]["truncated"] is True
        assert meta["tokens"]["estimated"] <= 1_000
        about = meta["mcp-optimizer/result"]
        text, offset = "", 0
        while True:
            page = await client.call_tool("read_result", {"result_id": about["resultId"], "offset": offset})
            assert (page.meta or {})["tokens"]["estimated"] <= 1_000
            text += page.content[0].text  # type: ignore[union-attr]
            offset = (page.meta or {})["mcp-optimizer/page"].get("nextOffset")
            if offset is None:
                break
        answer = json.loads(text)
        assert len(answer["data"]) == answer["rowCount"] == about["total"] == 640
        part = await client.call_tool("read_result", {"result_id": about["resultId"], "select": "data[-1][0]"})
        assert part.content[0].text == "640"  # type: ignore[union-attr]
        unknown = await client.call_tool("read_result", {"result_id": "r0"})
        assert unknown.is_error

    if transport == "stdio":
        async with over_stdio(config, "--max-tokens", 1000) as client:
            await check(client)
    else:
        async with gateway_at(config, "--max-tokens", 1000) as address, Client(address) as client:
            await check(client)
