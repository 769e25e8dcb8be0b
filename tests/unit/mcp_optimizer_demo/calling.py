"""Calls tools for the demo tests, through a real client that is connected to the server in this process."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.server.lowlevel import Server

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@dataclass
class SetClock:
    """A clock that only advances when a test says so."""

    moment: datetime = NOON

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, **span: float) -> None:
        self.moment += timedelta(**span)


@dataclass(frozen=True)
class Caller:
    """Calls the tools of one server, whose state persists between calls."""

    server: Server[dict[str, Any]]

    async def result(self, tool: str, **arguments: Any) -> types.CallToolResult:
        async with Client(self.server) as client:
            return await client.call_tool(tool, arguments)

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        """Call a tool. Returns its JSON result; an error fails the test."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, text_of(result)
        return json.loads(text_of(result))

    async def fault(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail. Returns the message of its error."""
        result = await self.result(tool, **arguments)
        assert result.is_error, text_of(result)
        assert result.structured_content is None
        return text_of(result)


def text_of(result: types.CallToolResult) -> str:
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    return texts[-1]
