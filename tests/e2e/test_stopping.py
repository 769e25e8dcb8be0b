"""A gateway that is stopped finishes the calls in progress, then ends every child process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import mcp_types as types
import pytest
from benchmarks.clients import PlainClient
from mcp import Client

from tests.conftest import Entry, WriteServers, plain_server
from tests.e2e.running import gateway_at, http_gateway
from tests.e2e.stopping import PING, echoes, ended_well, gauge, lists_tool, refuses, says, writing_to
from tests.e2e.test_relay import until_up
from tests.waiting import until

SOAK_SERVER = Path(__file__).parents[2] / "benchmarks" / "soak" / "server.py"
SLEEP = {"name": "sleep", "arguments": {"seconds": 60}}


@pytest.mark.promise("stop-finishes-calls")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_under_way_is_answered_before_the_gateway_stops(
    write_servers: WriteServers, tmp_path: Path, mode: str
) -> None:
    entry = {"command": sys.executable, "args": [str(SOAK_SERVER), str(tmp_path / "log")]}
    config = write_servers({"slow": entry})
    options = ["--mode", "transparent", "--database", "none"]
    async with http_gateway(config, *options, cold=True) as (address, process):
        client = Client(address, mode=mode)
        await client.__aenter__()
        await until_up(client)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        call = asyncio.create_task(client.call_tool("wait", {"id": "mine"}))
        await until(lambda: (tmp_path / "log").read_text() == "mine\n")
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        content = (await call).content[0]
        assert isinstance(content, types.TextContent)
        assert content.text.startswith("mine")
        await asyncio.wait_for(process.wait(), 15)
        assert time.monotonic() - started < 10
        assert process.returncode == 0
        await until(lambda: not [child for child in children if Path(f"/proc/{child}").exists()])


async def test_a_gateway_that_stops_says_so_first_then_refuses_new_calls_and_finishes_those_under_way(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    config = write_servers({"slow": plain_server("slow", "--mode", "waits")})
    options = ["--mode", "transparent", "--database", "none", "--shutdown-timeout", "20", "--shutdown-delay", "2"]
    os.mkfifo(tmp_path / "pipe")
    waiting = {"name": "wait", "arguments": {"pipe": str(tmp_path / "pipe")}}
    async with http_gateway(config, *options) as (address, process), httpx2.AsyncClient(timeout=60) as http:
        ready = address.removesuffix("mcp") + "ready"
        client = PlainClient(http, address, is_modern=True)
        await client.connect()
        await until(lambda: lists_tool(client, "wait"))
        under_way = asyncio.create_task(client.request(1, "tools/call", waiting))
        async with writing_to(tmp_path / "pipe"):
            assert (await http.get(ready)).status_code == 200
            signalled = time.monotonic()
            process.send_signal(signal.SIGTERM)
            await until(lambda: says(http, ready, "stopping"))
            answer = await http.get(ready)
            assert (answer.status_code, answer.json()["ready"]) == (503, False)
            assert await echoes(http, client) or time.monotonic() - signalled > 2
            await until(lambda: refuses(http, address))
            refused = await http.post(address, json=PING)
            assert int(refused.headers["retry-after"]) > 0
            assert "is stopping" in refused.json()["error"]["message"]
            assert not under_way.done()
        assert not (await under_way)["result"].get("isError")
        assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.promise("stop-on-time")
async def test_a_call_that_takes_too_long_is_told_that_the_gateway_was_stopped_and_holds_nobody_up(
    write_servers: WriteServers,
) -> None:
    config = write_servers({"slow": plain_server("slow")})
    options = ["--mode", "transparent", "--database", "none", "--shutdown-timeout", "1"]
    async with http_gateway(config, *options) as (address, process), httpx2.AsyncClient(timeout=60) as http:
        client = PlainClient(http, address, is_modern=True)
        await client.connect()
        await until(lambda: lists_tool(client, "sleep"))
        call = asyncio.create_task(client.request(1, "tools/call", SLEEP))
        await until(lambda: gauge(http, address, "calls_in_flight", 1))
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), 20)
        assert ended_well(code, time.monotonic() - started, 1)
        await asyncio.wait({call})
    if code == 1 and call.exception() is not None:
        # A gateway that its clock ended may have had no time to answer.
        return
    result = call.result()["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith("The gateway stopped in the middle of the call")


async def test_a_gateway_is_ready_when_a_tool_can_be_called_and_not_before(write_servers: WriteServers) -> None:
    config = write_servers({"late": plain_server("late", "--tools", 4_000), "other": plain_server("other")})
    async with gateway_at(config, "--database", "none") as address, httpx2.AsyncClient() as http:
        ready = address.removesuffix("mcp") + "ready"
        assert (await http.get(ready)).status_code == 503
        async with asyncio.timeout(20):
            while (await http.get(ready)).status_code != 200:
                await asyncio.sleep(0.02)
        async with Client(address) as client:
            arguments = {"tool_name": "echo", "server_name": "late", "parameters": {"value": "x"}}
            assert not (await client.call_tool("call_tool", arguments)).is_error


@pytest.mark.parametrize(("entries", "status"), [({}, 200), ({"gone": {"command": "no-such-command-here"}}, 503)])
async def test_a_gateway_without_servers_is_ready_and_one_whose_servers_all_failed_is_not(
    write_servers: WriteServers, entries: dict[str, Entry], status: int
) -> None:
    async with gateway_at(write_servers(entries), "--database", "none") as address:
        async with httpx2.AsyncClient() as http:
            # Asked repeatedly: a gateway whose servers all failed must never answer 200, not even while it starts.
            seen = set()
            for _ in range(10):
                seen.add((await http.get(address.removesuffix("mcp") + "ready")).status_code)
                await asyncio.sleep(0.1)
        assert status in seen
        assert 200 not in seen - {status}


async def test_more_calls_than_may_wait_are_told_to_try_again(write_servers: WriteServers, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [str(SOAK_SERVER), str(tmp_path / "log")]}
    options = ["--mode", "transparent", "--database", "none", "--max-in-flight", "2", "--max-waiting", "1"]
    async with gateway_at(write_servers({"slow": entry}), *options) as address, Client(address) as client:
        await until_up(client)
        results = await asyncio.gather(*(client.call_tool("wait", {"id": str(number)}) for number in range(6)))
        texts = [result.content[0].text for result in results]  # type: ignore[union-attr]
        assert sum(not result.is_error for result in results) == 3
        assert sum("is busy" in text and "Try again in about" in text for text in texts) == 3


async def test_a_gateway_that_a_balancer_watches_takes_calls_until_the_balancer_has_noticed(
    write_servers: WriteServers,
) -> None:
    config = write_servers({"one": plain_server("one")})
    options = ["--mode", "transparent", "--database", "none"]
    async with http_gateway(config, *options) as (address, process), httpx2.AsyncClient() as http:
        client = PlainClient(http, address, is_modern=True)
        await client.connect()
        await until(lambda: lists_tool(client, "echo"))
        ready = address.removesuffix("mcp") + "ready"
        assert (await http.get(ready)).json()["state"] == "ready"
        signalled = time.monotonic()

        def is_late() -> bool:
            """Whether the test itself came too late: the gateway's time runs from the signal."""
            return time.monotonic() - signalled > 3

        process.send_signal(signal.SIGTERM)
        try:
            await until(lambda: says(http, ready, "stopping"))
            is_noticed = False
            while not is_noticed:
                # Longer than a balancer takes that asks every second.
                is_noticed = time.monotonic() - signalled > 1.2
                assert await echoes(http, client) or is_late()
                response = await http.get(ready)
                assert (response.status_code, response.headers["connection"]) == (503, "close")
        except httpx2.HTTPError:
            assert is_late()
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_gateway_that_nobody_watches_ends_without_waiting(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    taken: list[float] = []
    # 3 s would be the time for a balancer to notice, each time; a machine does not pause each time.
    while not taken or (min(taken) >= 3 and len(taken) < 3):
        async with http_gateway(config, "--database", "none") as (address, process):
            async with Client(address) as client:
                await client.list_tools()
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 15) == 0
            taken.append(time.monotonic() - started)
    assert min(taken) < 3


async def test_a_request_that_was_accepted_before_the_stop_is_answered_though_its_body_arrives_later(
    write_servers: WriteServers,
) -> None:
    config = write_servers({"one": plain_server("one")})
    options = ["--mode", "transparent", "--database", "none", "--shutdown-delay", "0"]
    call = {"name": "echo", "arguments": {"value": "late but in time"}}
    body, headers = modern_request("tools/call", call, name="echo")
    async with http_gateway(config, *options) as (address, process):
        async with Client(address) as client:
            await until_up(client)
        port = int(address.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n".encode() + body[:20])
        await writer.drain()
        async with httpx2.AsyncClient() as http:
            # By the answer to this, the gateway has also seen what was sent before.
            await http.get(address.removesuffix("mcp") + "health")
            process.send_signal(signal.SIGTERM)
            await until(lambda: refuses(http, address))
        writer.write(body[20:])
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert b"late but in time" in answer
        assert await asyncio.wait_for(process.wait(), 10) == 0


def modern_request(method: str, params: Mapping[str, object], name: str) -> tuple[bytes, str]:
    """A request's body, and the lines of its header."""
    version = "2026-07-28"
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": version, f"{prefix}/clientCapabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
    lines = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": len(body),
        "Mcp-Protocol-Version": version,
        "Mcp-Method": method,
        "Mcp-Name": name,
    }
    return body, "".join(f"{key}: {value}\r\n" for key, value in lines.items())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_gateway_and_its_servers_at_once(
    write_servers: WriteServers, number: signal.Signals
) -> None:
    config = write_servers({"slow": plain_server("slow")})
    options = ["--mode", "transparent", "--database", "none", "--shutdown-timeout", "60"]
    async with (
        http_gateway(config, *options, cold=True) as (address, process),
        httpx2.AsyncClient(timeout=60) as http,
        httpx2.AsyncClient() as others,
    ):
        client = PlainClient(http, address, is_modern=True)
        await client.connect()
        await until(lambda: lists_tool(client, "sleep"))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        call = asyncio.create_task(client.attempt(1, "tools/call", SLEEP))
        await until(lambda: gauge(others, address, "calls_in_flight", 1))
        process.send_signal(number)
        await until(lambda: refuses(others, address))
        assert not call.done()
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 15) == 128 + number
        await call
        await until(lambda: not [child for child in children if Path(f"/proc/{child}").exists()])
