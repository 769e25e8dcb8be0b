"""Scripts: many tool calls, one answer."""
