"""A client on stdio that never ends a line, never reads, or asks for more than can be answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.raw_clients import LEGACY, MODERN, StdioClient, message, resident_bytes, stdio_client
from tests.e2e.running import COMMAND
from tests.e2e.test_hostile_http import limits

MEGABYTE = 1_000_000


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_line_over_the_limit_is_dropped_as_it_comes_and_its_request_is_refused(
    config: Path, tmp_path: Path, era: str
) -> None:
    options = ("--database", "none", *limits(tmp_path, request_bytes=1_000_000))
    async with stdio_client(config, *options, era=era, program=COMMAND) as client:
        # The gateway answers lists while it is still being loaded.
        await client.ask("tools/call", {"name": "list_tools", "arguments": {}})
        before = resident_bytes(client.process.pid)
        begin, _, end = json.dumps(message("tools/call", {"name": "VALUE"}, 77, era)).partition("VALUE")
        assert client.process.stdin is not None
        client.process.stdin.write(begin.encode())
        for _ in range(300):
            client.process.stdin.write(b"x" * MEGABYTE)
            await client.process.stdin.drain()
        answer = await client.exchange(end.encode())
        assert (answer["id"], answer["error"]["code"]) == (77, -32600)
        assert resident_bytes(client.process.pid) - before < 50 * MEGABYTE
        assert "tools" in (await client.ask("tools/list"))["result"]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_the_gateway_stops_reading_from_a_client_that_never_reads_until_it_does(config: Path, era: str) -> None:
    async with stdio_client(config, "--database", "none", era=era, most_unread=1 << 16, program=COMMAND) as client:
        # The gateway answers lists while it is still being loaded.
        await client.ask("tools/call", {"name": "list_tools", "arguments": {}})
        before = resident_bytes(client.process.pid)
        sent = await sent_until_blocked(client)
        assert resident_bytes(client.process.pid) - before < 50 * MEGABYTE
        answered = {(await client.receive())["id"] for _ in range(sent)}
        assert answered == {f"n{number}" for number in range(sent)}


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_requests_over_the_limit_are_refused_and_the_others_answered(
    config: Path, tmp_path: Path, era: str
) -> None:
    options = ("--database", "none", *limits(tmp_path, requests=5))
    slow = {"name": "call_tool", "arguments": {"tool_name": "sleep", "parameters": {"seconds": 3}}}
    echo = {"name": "call_tool", "arguments": {"tool_name": "echo", "parameters": {"value": "x"}}}
    async with stdio_client(config, *options, era=era) as client:
        async with asyncio.timeout(30):
            while (await client.ask("tools/call", echo))["result"].get("isError"):
                await asyncio.sleep(0.05)
        for number in range(8):
            await client.send(message("tools/call", slow, number, era))
        answers = [await client.receive() for _ in range(8)]
        refused = [answer for answer in answers if "error" in answer]
        assert [answer["id"] for answer in refused] == [5, 6, 7]
        assert refused[0]["error"]["data"] == {"retryAfter": 1}
        assert "tools" in (await client.ask("tools/list"))["result"]


async def sent_until_blocked(client: StdioClient) -> int:
    """Send requests without reading until the gateway stops reading; the last one arrives once it reads again."""
    long = {"_meta": {"padding": "x" * 10_000}}
    for number in range(2_000):
        try:
            await asyncio.wait_for(client.send(message("tools/list", long, f"n{number}", client.era)), 5)
        except TimeoutError:
            return number + 1
    raise AssertionError("the gateway never stopped reading")
