"""A catalog in a database, filled with a server and some tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_optimizer.db.catalog import Catalog
from mcp_optimizer.db.database import open_database
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus, ToolRow
from tests.unit.catalogs import mcp_tool


@asynccontextmanager
async def opened(place: Path | str | None) -> AsyncIterator[Catalog]:
    database = await open_database(place)
    try:
        yield Catalog(database)
    finally:
        await database.close()


def row(tool: McpTool, tokens: int = 7) -> ToolRow:
    return ToolRow(Definition.of(tool), tokens)


async def fill(catalog: Catalog, name: str = "github", *tools: McpTool) -> str:
    server_id = await catalog.save_server(name, "f1", "stdio", ServerStatus.RUNNING)
    await catalog.replace_tools(server_id, [row(tool) for tool in tools or (mcp_tool("a"), mcp_tool("b"))])
    return server_id
