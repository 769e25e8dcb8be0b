"""Process plumbing that knows nothing of MCP: logs, memory, lazy values, background work that yields to requests."""
