"""Process plumbing that knows nothing of MCP: logs, memory, values made once, background work that waits its turn."""
