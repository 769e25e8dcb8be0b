"""Find, list and call tools. No transport."""
