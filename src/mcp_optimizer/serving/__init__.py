"""MCP towards clients, over stdio and HTTP: where requests come in and answers go out."""
