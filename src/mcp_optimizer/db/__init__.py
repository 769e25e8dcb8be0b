"""The catalog's values and its database: what is known of servers and tools, and where it is kept."""
