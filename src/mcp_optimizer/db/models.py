"""Re-exports the value classes of tools from `domain.tools`, for importers of this path."""

from __future__ import annotations

from mcp_optimizer.domain.tools import BaseUpdateDetails, McpServer, McpTool, TokenMetrics, Tool, ToolUpdateDetails

__all__ = ["BaseUpdateDetails", "McpServer", "McpTool", "TokenMetrics", "Tool", "ToolUpdateDetails"]
