"""How busy a gateway is, at /metrics: what decides how many of them there should be."""

from __future__ import annotations

import asyncio
import re

import httpx2
from benchmarks.clients import PlainClient

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import gateway_at
from tests.e2e.stopping import gauge, lists_tool
from tests.waiting import until


async def test_metrics_say_how_busy_the_gateway_is_and_which_one_it_is(write_servers: WriteServers) -> None:
    options = ["--mode", "transparent", "--database", "none", "--max-in-flight", "1", "--shutdown-timeout", "0"]
    async with (
        gateway_at(write_servers({"slow": plain_server("slow")}), *options) as address,
        httpx2.AsyncClient(timeout=60) as http,
        httpx2.AsyncClient() as others,
    ):
        clients = [PlainClient(http, address, is_modern=number > 0) for number in range(3)]
        for client in clients:
            await client.connect()
        await until(lambda: lists_tool(clients[0], "sleep"), timeout=60)
        calls = [
            asyncio.create_task(client.request(number, "tools/call", {"name": "sleep", "arguments": {"seconds": 60}}))
            for number, client in enumerate(clients, 1)
        ]
        await until(lambda: gauge(others, address, "calls_waiting", 2))
        assert await gauge(others, address, "calls_in_flight", 1)
        assert await gauge(others, address, "requests_in_flight", 3)
        assert await gauge(others, address, "sessions", 1)
        assert await gauge(others, address, "ready", 1)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: gauge(others, address, "requests_in_flight", 0))
        text = (await others.get(address.removesuffix("mcp") + "metrics")).text
    assert re.search(
        r'^mcp_optimizer_gateway\{host="[^"]+",pid="\d+",version="[^"]+",worker=""\} 1', text, re.MULTILINE
    )
    for name in ("mcp_optimizer_loop_lag_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes"):
        assert re.search(rf"^{name} \d", text, re.MULTILINE), name
    assert "process_open_fds " in text
