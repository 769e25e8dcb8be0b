"""Facts about each MCP client: its files, its spelling, its permissions, and what it does with tools."""
