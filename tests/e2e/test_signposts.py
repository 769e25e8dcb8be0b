"""What a model is told to be behind a real gateway: their names from the first start on, and what
they are for from the second, before anything is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

import mcp_types as types
import pytest
from mcp import Client, stdio_client

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.own_tools import SPLIT_TOOLS
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.token_counter import TokenCounter
from tests.e2e.running import demo_entry, gateway_on_stdio
from tests.waiting import until

SAID = "kanban (boards, cards, columns, workspaces)"


def client_of(config: Path, *options: object, mode: str, log: TextIO) -> Client:
    info = types.Implementation(name="claude-code", version="1")
    started = stdio_client(gateway_on_stdio(config, *options), errlog=log)
    return Client(started, mode=mode, client_info=info, cache=None)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_first_request_of_the_next_start_is_told_what_is_behind(tmp_path: Path, mode: str) -> None:
    with (tmp_path / "log").open("a") as log:
        await _check_starts(tmp_path, mode, log)
    assert "Please report" not in (tmp_path / "log").read_text()


async def _check_starts(tmp_path: Path, mode: str, log: TextIO) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"kanban": demo_entry("kanban")}}))
    options = ("--database", tmp_path / "c.db")
    async with client_of(config, *options, mode=mode, log=log) as client:
        assert (client.instructions or "").startswith("Tools of kanban: search with find_tool")
        await until(lambda: list((tmp_path / "signposts").glob("*.json")), timeout=60)
        # It stays as it was told: some clients refuse to call a tool that has changed since.
        assert ((await client.list_tools()).tools[0].description or "").endswith(" Servers: kanban.")
    for _ in range(2):
        async with client_of(config, *options, mode=mode, log=log) as client:
            assert (client.instructions or "").startswith(f"Tools of {SAID}: search with find_tool")
            [find, *others] = (await client.list_tools()).tools
            assert (find.description or "").endswith(f" Servers: {SAID}.")
            assert find.meta == {"anthropic/alwaysLoad": True, "anthropic/searchHint": SAID}
            assert all(tool.meta == {"anthropic/alwaysLoad": True} for tool in others)
    denied = tmp_path / "settings.toml"
    denied.write_text('[[rules]]\neffect = "deny"\nserver = "kanban"\n')
    async with client_of(config, *options, "--settings", denied, mode=mode, log=log) as client:
        assert "kanban" not in (client.instructions or "")


async def test_it_is_part_of_what_our_own_tools_are_said_to_cost() -> None:
    servers = {"kanban": demo_entry("kanban")}
    async with Optimizer.from_config(servers, database="none", encoder="none") as optimizer:
        alone = TokenCounter().count_tokens(" Servers: " + SAID)
        before = sum(TokenCounter().count_many([compact(tool) for tool in SPLIT_TOOLS]))
        await until(lambda: optimizer.own_tokens > before)
        assert abs(optimizer.own_tokens - before - alone) <= 2
