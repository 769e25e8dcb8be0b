"""Which tools are registered directly, within what token budget, and when the remaining tools are added."""
