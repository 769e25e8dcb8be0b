"""With a real client: what a tool's own limit cut is in the metadata, and told to a model that does not read it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.conftest import WriteServers
from tests.e2e.running import demo_entry, over_stdio, until_found

GIVING = Path(__file__).parents[1] / "servers" / "giving.py"
EVERYONE = "SELECT * FROM customers"


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"sql": demo_entry("sql"), "giving": {"command": sys.executable, "args": [str(GIVING)]}})


def texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def data(result: types.CallToolResult) -> dict[str, Any]:
    found: dict[str, Any] = (result.meta or {})["data"]
    return found


async def queried(client: Client, query: str, **more: Any) -> types.CallToolResult:
    parameters = {"queryDescription": query, "maxRows": 100}
    arguments = {"tool_name": "secureDatabaseQuery", "parameters": parameters, **more}
    return await client.call_tool("call_tool", arguments)


@pytest.mark.requirement("C5", "RM-7")
async def test_rows_that_a_tool_left_out_are_never_left_out_in_silence(config: Path) -> None:
    async with over_stdio(config) as client:
        await until_found(client, "run one SQL SELECT statement", "secureDatabaseQuery")
        await until_found(client, "to newest", "newest")
        cut = await queried(client, EVERYONE)
        assert data(cut) == {"rowCount": 100, "columnCount": 3, "truncated": True, "maxRowsLimit": 100}
        # The model reads it in the result, so that nothing is added.
        assert [json.loads(text)["truncated"] for text in texts(cut)] == [True]

        counted = await queried(client, EVERYONE, select="length(data)")
        assert texts(counted)[0] == "100"
        assert "[100 rows: the tool's limit (maxRows); there are more.]" in texts(counted)
        assert data(counted)["truncated"] is True

        whole = await queried(client, f"{EVERYONE} LIMIT 100")
        assert data(whole) == {"rowCount": 100, "columnCount": 3, "truncated": False, "maxRowsLimit": 1000}
        assert len(texts(whole)) == 1

        newest = await client.call_tool("call_tool", {"tool_name": "newest"})
        assert texts(newest)[1:] == ["[3 rows, the tool's limit (limit): there may be more.]"]
        assert data(newest) == {"rowCount": 3, "columnCount": 1, "maxRowsLimit": 3}
        all_of_them = await client.call_tool("call_tool", {"tool_name": "newest", "parameters": {"limit": 1_001}})
        assert data(all_of_them)["truncated"] is False


async def test_a_result_that_passes_unchanged_says_it_in_its_metadata_only(config: Path) -> None:
    async with over_stdio(config, "--mode", "transparent") as client:
        newest = await client.call_tool("giving__newest", {})
        assert texts(newest) == ['[{"id": 0}, {"id": 1}, {"id": 2}]']
        assert data(newest) == {"rowCount": 3, "columnCount": 1, "maxRowsLimit": 3}
        cut = await client.call_tool("sql__secureDatabaseQuery", {"queryDescription": EVERYONE})
        assert data(cut) == {"rowCount": 100, "columnCount": 3, "truncated": True, "maxRowsLimit": 100}
