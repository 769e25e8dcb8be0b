"""A kanban system as an MCP server: workspaces, boards, cards and flow analytics, all in memory."""
