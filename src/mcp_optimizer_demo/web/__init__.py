"""A small web as an MCP server: some two dozen pages to search, read, compare and picture."""
