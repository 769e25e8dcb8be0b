"""Tasks behind three gateways without stickiness: the others answer for a task whose gateway was killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import free_port
from tests.e2e.extended import SERVER, TASKS, called, declaring, text_of
from tests.e2e.raw_clients import MODERN, HttpClient, http_client
from tests.e2e.three_gateways import Cluster, three_gateways
from tests.postgres import Postgres
from tests.waiting import until

WITH = declaring(TASKS)


@pytest.fixture
def cluster(postgres: Postgres, tmp_path: Path) -> Iterator[Cluster]:
    """Three gateways in front of one server over HTTP, which outlives them."""
    port, config = free_port(), tmp_path / "mcp.json"
    server = subprocess.Popen([sys.executable, str(SERVER), "--name", "one", "--http", str(port)])
    try:
        config.write_text(json.dumps({"mcpServers": {"one": {"url": f"http://127.0.0.1:{port}/mcp"}}}))
        with three_gateways(config, postgres.new_database(), "--encoder", "none") as cluster:
            yield cluster
    finally:
        server.kill()
        server.wait()


async def is_done(client: HttpClient, asked: dict[str, Any]) -> bool:
    return bool((await client.ask("tasks/get", asked))["result"]["status"] == "completed")


async def test_a_task_is_answered_by_every_gateway_after_the_one_that_made_it_was_killed(cluster: Cluster) -> None:
    first, *others = cluster.gateways
    given = {"tool_name": "slow_compute", "parameters": {"seconds": 4, "label": "x"}}
    async with http_client(first.address, MODERN) as client:
        made = await called(client, "call_tool", WITH, **given)
    assert made["resultType"] == "task"
    asked = {"taskId": made["taskId"], **WITH}
    for gateway in others:
        async with http_client(gateway.address, MODERN) as client:
            assert (await client.ask("tasks/get", asked))["result"]["status"] == "working"
    await asyncio.to_thread(first.kill)
    for gateway in others:
        async with http_client(gateway.address, MODERN) as client:
            await until(partial(is_done, client, asked), timeout=30)
            found = (await client.ask("tasks/get", asked))["result"]
            assert text_of(found["result"]) == "computed x"
    async with http_client(cluster.address, MODERN) as client:
        statuses = [(await client.ask("tasks/get", asked))["result"]["status"] for _ in range(4)]
        assert statuses == ["completed"] * 4
