"""Starts the kanban server over stdio."""

from mcp_optimizer_demo.kanban.server import kanban_server
from mcp_optimizer_demo.toolserver import serve_stdio

if __name__ == "__main__":
    serve_stdio(kanban_server())
