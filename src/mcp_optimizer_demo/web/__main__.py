"""Starts the web server over stdio."""

from mcp_optimizer_demo.toolserver import serve_stdio
from mcp_optimizer_demo.web.server import web_server

if __name__ == "__main__":
    serve_stdio(web_server())
