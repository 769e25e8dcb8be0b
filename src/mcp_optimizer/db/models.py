"""The values of tools, importable from this path. They are defined in `domain`."""

from __future__ import annotations

from mcp_optimizer.domain.tools import BaseUpdateDetails, McpServer, McpTool, TokenMetrics, Tool, ToolUpdateDetails

__all__ = ["BaseUpdateDetails", "McpServer", "McpTool", "TokenMetrics", "Tool", "ToolUpdateDetails"]
