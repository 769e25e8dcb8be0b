"""From what a server lists to what the catalog holds: counted once, indexed, stored."""
