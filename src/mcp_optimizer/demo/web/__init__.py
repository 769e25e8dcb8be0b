"""A small web as an MCP server: some two dozen pages that can be searched, read, compared and pictured."""
