"""A modern server behind three gateways: it is told the answers, and its changes are noticed, at whichever of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.cluster import free_port
from tests.e2e.running import until_found
from tests.e2e.test_relay import Person, text
from tests.e2e.three_gateways import Cluster, three_gateways
from tests.postgres import Postgres
from tests.warm import WARM_PYTHON, warm_server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SERVERS = Path(__file__).parents[1] / "servers"


def listing(*names: str) -> str:
    return json.dumps(
        [{"name": name, "description": f"To {name}.", "inputSchema": {"type": "object"}} for name in names]
    )


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("listed") / "tools.json"
    found.write_text(listing("relist", "paint"))
    return found


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, tools: Path) -> Iterator[Cluster]:
    port, config = free_port(), tools.with_name("mcp.json")
    asking = warm_server(str(SERVERS / "conformant.py"), "--era", "modern")
    shared = {"url": f"http://127.0.0.1:{port}/mcp", "trust": "off"}
    config.write_text(json.dumps({"mcpServers": {"new": asking, "shared": shared}}))
    with subprocess.Popen([*WARM_PYTHON, str(SERVERS / "changing.py"), str(tools), str(port)]) as server:
        try:
            with three_gateways(config, postgres.new_database()) as cluster:
                yield cluster
        finally:
            server.terminate()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_a_modern_server_needs_is_answered_at_whichever_gateway_has_its_turn(
    cluster: Cluster, mode: Any
) -> None:
    call = {"tool_name": "test_input_required_result_multi_round", "parameters": {}}
    async with Client(cluster.address, mode=mode, **Person().callbacks()) as client:
        # Three answers to a call, and three gateways: over these calls each gets every part of one.
        for _ in range(4):
            assert text(await client.call_tool("call_tool", call)) == "Both, after round 2."


async def test_a_list_that_changes_is_noticed_at_every_gateway(cluster: Cluster, tools: Path) -> None:
    clients = [Client(gateway.address) for gateway in cluster.gateways]
    async with clients[0], clients[1], clients[2]:
        for client in clients:
            await until_found(client, "paint", "paint", seconds=60)
        tools.write_text(listing("relist", "paint", "varnish"))
        await clients[1].call_tool("call_tool", {"tool_name": "relist", "parameters": {}})
        await asyncio.gather(*(until_found(client, "varnish", "varnish", seconds=60) for client in clients))
