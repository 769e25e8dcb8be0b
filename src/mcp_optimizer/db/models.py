"""The values of tools, under the module that the source documents name. They live in `domain`."""

from __future__ import annotations

from mcp_optimizer.domain.tools import BaseUpdateDetails, McpServer, McpTool, TokenMetrics, Tool, ToolUpdateDetails

__all__ = ["BaseUpdateDetails", "McpServer", "McpTool", "TokenMetrics", "Tool", "ToolUpdateDetails"]
