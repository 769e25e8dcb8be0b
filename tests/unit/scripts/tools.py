"""Tools for tests of scripts, as the catalog has them."""

from __future__ import annotations

from typing import Any

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.catalog.tools import make_records
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.search.lexical import Vocabulary


def catalog_tool(
    server: str, name: str, schema: dict[str, Any], description: str | None = None, **fields: Any
) -> CatalogTool:
    return of_details(server, McpTool(name=name, description=description, inputSchema=schema, **fields))


def of_details(server: str, details: McpTool) -> CatalogTool:
    [made] = make_records(server, [Definition.of(details)], {}, Vocabulary())
    return CatalogTool(made, details.name, 1)
