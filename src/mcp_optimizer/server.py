"""The reply of `find_tool`, importable from this path. The MCP server itself is in `serving`."""

from __future__ import annotations

from mcp_optimizer.gateway.found_tools import FindToolResponse, find_response
from mcp_optimizer.serving.own_tools import find_reply

__all__ = ["FindToolResponse", "find_reply", "find_response"]
