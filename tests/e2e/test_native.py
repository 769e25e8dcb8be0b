"""`--mode native`: all tools for a client that searches itself, with everything else that the gateway does."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

from mcp_optimizer import Optimizer, TokenCounter
from tests.e2e.running import command, demo_entry, over_stdio
from tests.waiting import until

COUNTER = TokenCounter()


@asynccontextmanager
async def native(name: str = "claude-code", **options: Any) -> AsyncIterator[tuple[Optimizer, Client]]:
    info = types.Implementation(name=name, version="1")
    settings = {"database": "none", "encoder": "none", **options}
    async with (
        Optimizer.from_config(demo=True, mode="native", **settings) as optimizer,
        Client(optimizer.mcp_server(), mode="legacy", client_info=info, cache=None) as client,
    ):
        yield optimizer, client


async def test_all_tools_are_listed_once_compressed_and_of_our_own_only_read_result() -> None:
    async with native() as (optimizer, client):
        listed = (await client.list_tools()).tools
        names = [tool.name for tool in listed]
        assert names[0] == "read_result"
        assert len(set(names)) == len(names) == 86
        assert not {"find_tool", "call_tool", "list_tools"} & set(names)
        # Only our own tool asks to be loaded at once: the others are what a client searches among.
        assert [tool.name for tool in listed if tool.meta] == ["read_result"]
        wire = json.dumps([tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed])
        assert COUNTER.count_tokens(wire) < 0.75 * optimizer.snapshot.baseline_tokens
        assert (client.instructions or "").endswith("What was cut of a result, read_result reads.")


async def test_a_result_is_cut_and_its_rest_is_read() -> None:
    async with native(max_tokens=400, preview_tokens=200) as (_, client):
        cut = await client.call_tool("list_cards", {"board_id": 1})
        [result_id] = re.findall(r'read_result\(result_id="(\w+)"', str(cut.content))
        more = await client.call_tool("read_result", {"result_id": result_id, "offset": 1, "limit": 1})
        assert not more.is_error, more.content


async def test_a_denied_tool_is_neither_listed_nor_called() -> None:
    rules = [{"effect": "deny", "tool": "delete_*"}, {"effect": "deny", "server": "sql"}]
    async with native(rules=rules) as (_, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert not [name for name in names if name.startswith("delete_")]
        assert "listTables" not in names
        refused = await client.call_tool("delete_card", {"card_id": 1})
        assert refused.is_error
        assert "sql" not in (client.instructions or "")


async def test_what_is_called_is_accounted_for_and_audited(tmp_path: Path) -> None:
    config, audit = tmp_path / "mcp.json", tmp_path / "audit.jsonl"
    config.write_text(json.dumps({"mcpServers": {"kanban": demo_entry("kanban")}}))
    options = ("--mode", "native", "--database", tmp_path / "c.db", "--audit-file", audit)
    async with over_stdio(config, *options) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "list_boards" in names
        result = await client.call_tool("list_boards", {})
        assert result.meta is not None
        assert result.meta["tokens"]["estimated"] > 0
    await until(lambda: audit.exists() and '"tool":"list_boards"' in audit.read_text())
    report = await command("report", "--config", config, "--database", tmp_path / "c.db", "--json")
    assert "list_boards" in report.out
