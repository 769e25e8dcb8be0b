"""The 65 tools of the demo kanban server as a client is sent them, for tests of what they cost."""

from __future__ import annotations

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS


def kanban_tools() -> list[McpTool]:
    sent = (tool.definition().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in KANBAN_TOOLS)
    return [McpTool.model_validate(definition) for definition in sent]
