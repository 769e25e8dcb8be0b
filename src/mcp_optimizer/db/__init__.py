"""The catalog database: its tables, and the reads and writes of everything that gateways store."""
