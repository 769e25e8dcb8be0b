"""Starts the database server over stdio."""

from mcp_optimizer.demo.sql.server import sql_server
from mcp_optimizer.demo.toolserver import serve_stdio

if __name__ == "__main__":
    serve_stdio(sql_server())
