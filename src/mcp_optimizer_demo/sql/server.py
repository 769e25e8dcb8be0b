"""The database server: its eight tools, on the bundled shop. Started by `python -m mcp_optimizer_demo.sql`."""

from typing import Any

from mcp.server.lowlevel import Server

from mcp_optimizer_demo.sql.database import SHOP_DATABASE, ReadOnlyDatabase
from mcp_optimizer_demo.sql.query_tools import QUERY_TOOLS
from mcp_optimizer_demo.sql.schema_tools import SCHEMA_TOOLS
from mcp_optimizer_demo.toolserver import build_server

SQL_TOOLS = (*QUERY_TOOLS, *SCHEMA_TOOLS)

INSTRUCTIONS = (
    "A furniture shop's database, read-only. Call listTables and describeTable to learn the schema, then "
    "secureDatabaseQuery with a SQL SELECT statement (SQLite dialect)."
)


def sql_server(database: ReadOnlyDatabase | None = None) -> Server[dict[str, Any]]:
    """The server on the given database, or on the bundled one."""
    state = ReadOnlyDatabase(SHOP_DATABASE) if database is None else database
    return build_server("sql", "Shop Database", INSTRUCTIONS, SQL_TOOLS, state)
