"""How well and how fast find_tool finds."""
