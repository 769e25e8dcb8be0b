"""MCP towards clients, over stdio and HTTP: receives requests and sends responses."""
