"""Scripts: many calls of tools, one answer."""
