"""A shop's database as an MCP server: SELECT statements and questions about the schema, read-only."""
