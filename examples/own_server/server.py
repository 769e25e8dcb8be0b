"""A tiny MCP server, to have one of our own: what a tea shop knows. It runs on stdio; mcp.json starts it."""

from __future__ import annotations

import os

from mcp.server import MCPServer

TEAS = {"sencha": (70, 2), "assam": (95, 4), "oolong": (90, 3)}

server = MCPServer("tea")


@server.tool()
def brewing_instructions(tea: str) -> str:
    """How hot the water should be for a tea, and how long the tea should draw."""
    degrees, minutes = TEAS[tea.lower()]
    return f"{os.environ['SHOP']}: {degrees} degrees, {minutes} minutes"


@server.tool()
def list_teas() -> list[str]:
    """All teas that the shop sells."""
    return sorted(TEAS)


@server.tool()
def close_shop() -> str:
    """Close the shop for good."""
    raise SystemExit("mcp.json turns this tool off, so that nobody can get here.")


if __name__ == "__main__":
    server.run("stdio")
