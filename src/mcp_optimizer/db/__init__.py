"""The catalog database: what is known of servers and tools, and where it is stored."""
