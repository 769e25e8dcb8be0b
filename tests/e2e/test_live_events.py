"""Live events over HTTP: a watcher sees them at once, and does not keep the gateway from stopping."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import http_gateway, until_found


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


async def test_a_watcher_sees_each_event_and_a_gateway_with_watchers_stops_at_once(config: Path) -> None:
    async with http_gateway(config) as (address, process):
        home = address.removesuffix("/mcp")
        async with httpx2.AsyncClient(base_url=home, timeout=20) as http, http.stream("GET", "/events") as stream:
            lines = stream.aiter_lines()
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert await anext(lines) == ": hello"
            async with Client(address) as client:
                await until_found(client, "say something back", "echo")
                await client.call_tool("call_tool", {"tool_name": "echo", "parameters": {"value": "a secret"}})
            async with asyncio.timeout(20):
                seen: list[dict[str, object]] = []
                while not seen or seen[-1]["kind"] != "call":
                    line = await anext(lines)
                    assert "secret" not in line
                    if line.startswith("data: "):
                        seen.append(json.loads(line.removeprefix("data: ")))
            assert (seen[-1]["which"], seen[-1]["outcome"], seen[-1]["href"]) == ("echo", "ok", "/tools/one/echo")
            metrics = (await http.get("/metrics")).text
            families = {family.name: family for family in text_string_to_metric_families(metrics)}
            [here] = families["mcp_optimizer_gateway"].samples
            assert seen[-1]["gateway"] == f"{here.labels['host']}, process {here.labels['pid']}"
            calls = families["mcp_optimizer_calls"].samples
            assert [(s.labels, s.value) for s in calls] == [({"server": "one", "outcome": "ok"}, 1.0)]
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 9)
            assert time.monotonic() - started < 9
