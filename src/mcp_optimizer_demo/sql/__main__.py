"""Starts the database server over stdio."""

from mcp_optimizer_demo.sql.server import sql_server
from mcp_optimizer_demo.toolserver import serve_stdio

if __name__ == "__main__":
    serve_stdio(sql_server())
