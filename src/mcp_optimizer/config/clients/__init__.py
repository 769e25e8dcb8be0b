"""Other programs' configuration files: where they are, which servers they have, and how those are imported."""
